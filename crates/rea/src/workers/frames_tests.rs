//! The frames against the samples that the Python side is tested with too.

use ax_model::lifecycle::Fence;
use ax_model::store::AttemptRef;
use ax_model::{OnCrash, Timestamp};

use super::*;

const SAMPLES: &str = include_str!("../../../../protocol/samples/frames.txt");

fn samples(direction: &str) -> Vec<&'static str> {
    SAMPLES.lines().filter_map(|line| line.strip_prefix(direction)).map(str::trim).collect()
}

fn job() -> Claimed {
    let id: JobId = "0193793e-7f00-7000-8000-000000000001".parse().unwrap();
    let fence = Fence { attempt: 2, token: Token(0x6f1d_0a9b_8c7e_6f50) };
    Claimed {
        attempt: AttemptRef { seq: 1, id, fence },
        task: "demo_task:send_notice".into(),
        queue: "default".into(),
        args: "[1001]".into(),
        kwargs: r#"{"lang":"中文"}"#.into(),
        priority: 5,
        due: Timestamp(0),
        place: (Timestamp(0), 1),
        created_at: Timestamp(0),
        claimed_at: Timestamp(0),
        timeout_ms: Some(60_000),
        failures: 1,
        max_attempts: 5,
        on_crash: OnCrash::Retry,
        write_start: false,
        trace_id: id.simple(),
        root_id: id,
        key: None,
        fills: false,
    }
}

#[test]
fn every_sample_from_a_child_is_read() {
    let read: Vec<FromChild> = samples("<").iter().map(|text| parse(text.as_bytes()).unwrap()).collect();
    assert_eq!(read.len(), 6, "a new sample needs a line here");
    let FromChild::Hello { pid: 4242, lang, ahead: true, tasks, files } = &read[0] else { panic!("{:?}", read[0]) };
    assert_eq!((&**lang, files), ("python 3.11.7", &vec!["/srv/demo_task.py".into()]));
    assert_eq!((tasks[0].priority, tasks[0].max_attempts, tasks[0].timeout_ms), (Some(3), Some(5), None));
    assert_eq!((tasks[1].on_crash, tasks[1].timeout_ms), (Some(OnCrash::Hold), Some(None)));
    let declared = tasks[1].schedule.as_ref().unwrap();
    assert_eq!((declared.cron.as_deref(), declared.timezone.as_deref()), (Some("0 2 * * *"), Some("Asia/Shanghai")));
    assert_eq!((tasks[0].memory_bytes, tasks[1].memory_bytes), (None, Some(512 << 20)));
    assert!(matches!(&read[1], FromChild::Bad { kind, files, .. } if kind == "SyntaxError" && files.len() == 1));
    let note = Some("three of ten".to_owned());
    let progress = Progress { done: 3.0, total: Some(10.0), note };
    assert_eq!(read[2], FromChild::Progress { token: "6f1d0a9b8c7e6f50".into(), progress });
    let FromChild::Done { token, end, leftovers } = &read[3] else { panic!("{:?}", read[3]) };
    assert_eq!(*leftovers, Leftovers::default());
    assert!(is_token(token, Token(0x6f1d_0a9b_8c7e_6f50)) && !is_token(token, Token(1)));
    assert_eq!(*end, End::Ok(r#"{"sent":1001,"big":12345678901234567890}"#.into()));
    let FromChild::Done { end: End::Failed { error, fatal: false, after_ms: Some(2500) }, leftovers, .. } = &read[4]
    else {
        panic!("{:?}", read[4])
    };
    assert_eq!(*leftovers, Leftovers { dirty: true, spawned: false });
    assert_eq!((error.cause.as_str(), error.kind.as_str()), ("error", "rea.exception.RetryableError"));
    assert!(error.traceback.as_ref().unwrap().ends_with(":\n"));
    let FromChild::Done { end: End::Failed { error, fatal: true, after_ms: None }, .. } = &read[5] else {
        panic!("{:?}", read[5])
    };
    assert_eq!((error.message.as_str(), &error.traceback), ("bad input", &None));
}

#[test]
fn every_sample_to_a_child_is_written_exactly() {
    let samples = samples(">");
    assert_eq!(samples.len(), 2, "a new sample needs a line here");
    let mut out = b"of the job before".to_vec();
    assert!(write_run(&mut out, &job(), 1_048_576));
    assert_eq!(std::str::from_utf8(&out[HEADER..]).unwrap(), samples[0]);
    assert_eq!(u32::from_be_bytes(out[..HEADER].try_into().unwrap()) as usize, samples[0].len());
    assert_eq!(std::str::from_utf8(&GO[HEADER..]).unwrap(), samples[1]);
    assert_eq!(u32::from_be_bytes(GO[..HEADER].try_into().unwrap()) as usize, samples[1].len());
}

#[test]
fn names_with_quotes_stay_inside_their_strings() {
    let key = Some("a\"b\\c\n\u{1}é".to_owned());
    let odd = Claimed { key: key.clone(), timeout_ms: None, ..job() };
    let mut out = Vec::new();
    assert!(write_run(&mut out, &odd, 9));
    let value: serde_json::Value = serde_json::from_slice(&out[HEADER..]).unwrap();
    assert_eq!((value["key"].as_str(), &value["timeout_ms"]), (key.as_deref(), &serde_json::Value::Null));
}

#[test]
fn what_is_no_frame_is_refused() {
    let big = Claimed { args: format!("[{}]", "1,".repeat(FRAME_MAX)), ..job() };
    assert!(!write_run(&mut Vec::new(), &big, 9));
    for body in [
        "",
        "nothing",
        "[]",
        "{}",
        r#"{"t":"gossip"}"#,
        r#"{"t":"done","token":"1","ok":false}"#,
        r#"{"t":"done","token":"1","ok":true,"result":[}"#,
        r#"{"t":"hello","v":2,"pid":1}"#,
        r#"{"t":"progress","token":"1"}"#,
    ] {
        assert!(parse(body.as_bytes()).is_err(), "{body}");
    }
    assert!(parse(b"{\"t\":\"done\",\"token\":\"1\",\"ok\":true,\"result\":\"\xff\"}").is_err());
}

/// Found by `fuzz_child_frame`: a text of megabytes in a frame that is wrong came back whole, and would have stood in the log.
#[test]
fn what_is_wrong_with_a_frame_is_told_briefly() {
    let long = "x".repeat(1 << 20);
    for frame in [
        format!(r#"{{"t":"{long}"}}"#),
        format!(r#"{{"t":"hello","v":"{long}"}}"#),
        format!(r#"{{"t":"done","token":"1","ok":"{long}"}}"#),
    ] {
        let Malformed(message) = parse(frame.as_bytes()).unwrap_err();
        assert!(message.len() < 500, "{} bytes", message.len());
    }
}
