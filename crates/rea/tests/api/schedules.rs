//! Schedules over the API: made, changed, fired, and what they tell of themselves.

use serde_json::{Value, json};

use crate::bed::{Bed, code};

async fn make(bed: &Bed, schedule: Value) -> Value {
    let (status, made) = bed.post("/schedules", schedule.to_string()).await;
    assert_eq!(status, 201, "{made}");
    made
}

#[tokio::test]
async fn a_schedule_is_made_shown_changed_and_removed() {
    let bed = Bed::new().await;
    let body = json!({
        "name": "night ly", "cron": "0 2 * * *", "timezone": "asia/shanghai", "overlap": "cancel_old",
        "job": {"task": "echo", "args": [5, {"password": "x"}], "timeout": null, "tags": ["t"]},
    });
    let made = make(&bed, body).await;
    assert_eq!(
        (&made["timezone"], &made["every"], &made["state"]),
        (&json!("Asia/Shanghai"), &json!(null), &json!("active"))
    );
    assert_eq!(
        (&made["catch_up"], &made["overlap"], &made["offered"]),
        (&json!("latest"), &json!("cancel_old"), &json!(true))
    );
    assert_eq!((&made["job"]["timeout"], &made["job"]["args"][1]["password"]), (&json!(null), &json!("[redacted]")));
    assert!(made["job"].get("queue").is_none() && made["job"].get("timeout").is_some(), "{made}");
    assert!(made["next_at"].as_str().unwrap().ends_with("T18:00:00.000000Z"), "{made}");
    assert!(made["reading"].as_str().unwrap().contains("02:00"), "{made}");
    assert_eq!(bed.get("/schedules/night%20ly").await.1, made);
    assert_eq!(bed.get("/schedules").await.1["schedules"], json!([made]));
    let (status, edited) = bed.send("PATCH", "/schedules/night%20ly", r#"{"every": 1.5, "catch_up": "none"}"#).await;
    assert_eq!(
        (status, &edited["every"], &edited["cron"], &edited["catch_up"]),
        (200, &json!(1.5), &json!(null), &json!("none"))
    );
    let (_, paused) = bed.post("/schedules/night%20ly/pause", r#"{"reason": "a move"}"#).await;
    assert_eq!(
        (&paused["state"], &paused["pause_reason"], &paused["next_at"]),
        (&json!("paused"), &json!("a move"), &json!(null))
    );
    assert_eq!(bed.post("/schedules/night%20ly/resume", "").await.1["state"], "active");
    for n in ["a", "b", "c"] {
        make(&bed, json!({"name": n, "every": 3600, "job": {"task": "echo"}})).await;
    }
    let (_, page) = bed.get("/schedules?limit=2").await;
    assert_eq!((&page["schedules"][1]["name"], &page["next_after"]), (&json!("b"), &json!("b")));
    let (_, rest) = bed.get("/schedules?limit=9&after=b").await;
    assert_eq!((rest["schedules"].as_array().unwrap().len(), &rest["next_after"]), (2, &json!(null)));
    assert_eq!(bed.send("DELETE", "/schedules/a", "").await, (200, json!({"removed": "a"})));
    assert_eq!(code(&bed.send("DELETE", "/schedules/a", "").await), (404, "not_found"));
    bed.end().await;
}

/// C108 of schedules: a list of large ones is small, each by itself is whole.
#[tokio::test]
async fn c108_a_list_of_schedules_with_large_arguments_is_small() {
    let bed = Bed::new().await;
    let long = "x".repeat(500_000);
    for name in ["a", "b"] {
        make(
            &bed,
            json!({"name": name, "cron": "@yearly", "job": {"task": "echo", "args": [long], "kwargs": {"k": 1}}}),
        )
        .await;
    }
    let nodes = json!({"first": {"task": "echo", "args": [long]}, "second": {"task": "echo"}});
    make(&bed, json!({"name": "f", "every": 3600, "flow": {"name": "loud", "nodes": nodes}})).await;
    let (_, list) = bed.get("/schedules").await;
    assert!(list.to_string().len() < 5_000, "{}", list.to_string().len());
    assert_eq!(list["schedules"][0]["job"], json!({"task": "echo", "args_bytes": 500_004, "kwargs": {"k": 1}}));
    assert_eq!(list["schedules"][2]["flow"], json!({"name": "loud"}));
    assert_eq!(bed.get("/schedules/a").await.1["job"], json!({"task": "echo", "args": [long], "kwargs": {"k": 1}}));
    assert_eq!(bed.get("/schedules/f").await.1["flow"], json!({"name": "loud", "nodes": ["first", "second"]}));
    bed.end().await;
}

#[tokio::test]
async fn a_tick_leads_to_its_flow() {
    let bed = Bed::new().await;
    let nodes = json!({"only": {"task": "broken"}});
    make(&bed, json!({"name": "f", "every": 3600, "flow": {"name": "sad", "nodes": nodes}})).await;
    let (_, run) = bed.post("/schedules/f/run", "").await;
    let id = run["task_id"].as_str().unwrap();
    bed.reach(id, "success").await;
    let (_, ticks) = bed.get("/schedules/f/ticks").await;
    let flow = ticks["ticks"][0]["flow_id"].as_str().unwrap().to_owned();
    let (_, ended) = bed.get(&format!("/flows/{flow}?wait=20")).await;
    assert_eq!((&ended["state"], &ended["root_id"]), (&json!("dead"), &json!(id)));
    let (_, ticks) = bed.get("/schedules/f/ticks").await;
    assert_eq!((&ticks["ticks"][0]["state"], &ticks["ticks"][0]["task_id"]), (&json!("dead"), &json!(id)));
    let (_, why) = bed.get(&format!("/jobs/{id}/why")).await;
    assert!(why.to_string().contains(&format!("rea flow show {flow}")), "{why}");
    bed.end().await;
}

#[tokio::test]
async fn c048_what_is_wrong_is_refused_with_its_field() {
    let bed = Bed::new().await;
    make(&bed, json!({"name": "n", "every": 3600, "job": {"task": "echo"}})).await;
    let job = json!({"task": "echo"});
    for (body, wanted, field) in [
        (json!({"name": "n", "every": 60, "job": job}), (409, "schedule_exists"), "name"),
        (json!({"name": "m", "every": 0.5, "job": job}), (422, "invalid_field"), "every"),
        (json!({"name": "m", "every": 60, "cron": "@daily", "job": job}), (422, "invalid_field"), "every"),
        (json!({"name": "m", "job": job}), (422, "invalid_field"), "cron"),
        (json!({"name": "m", "cron": "0 0 30 2 *", "job": job}), (422, "invalid_field"), "cron"),
        (json!({"name": "m", "cron": "@daily", "timezone": "PST8", "job": job}), (422, "invalid_field"), "timezone"),
        (json!({"name": "m", "cron": "@daily", "timezone": "", "job": job}), (422, "invalid_field"), "timezone"),
        (
            json!({"name": "m", "cron": "@daily", "timezone": "Mars/Base", "job": job}),
            (422, "invalid_field"),
            "timezone",
        ),
        (json!({"name": "m", "cron": "@daily", "timezone": "+05:30", "job": job}), (422, "invalid_field"), "timezone"),
        (json!({"name": "m", "every": 60}), (422, "invalid_field"), "job"),
        (json!({"name": "m", "every": 60, "job": {"task": "echo", "key": "k"}}), (422, "invalid_field"), "job"),
        (
            json!({"name": "m", "every": 60, "job": {"task": "echo", "callback_url": "https://example.org/"}}),
            (422, "invalid_field"),
            "job",
        ),
        (
            json!({"name": "m", "every": 60, "job": {"task": "echo", "priority": 11}}),
            (422, "invalid_field"),
            "priority",
        ),
        (json!({"name": "m", "every": 60, "job": {"task": "ecko"}}), (422, "unknown_task"), "task"),
        (json!({"name": "m", "every": 60, "jobs": {"task": "echo"}}), (422, "unknown_field"), "jobs"),
        (json!({"name": "a\nb", "every": 60, "job": job}), (422, "invalid_field"), "name"),
        (json!({"name": "m", "every": 60, "start": "now", "job": job}), (422, "invalid_field"), "start"),
    ] {
        let answer = bed.post("/schedules", body.to_string()).await;
        assert_eq!((code(&answer), answer.1["field"].as_str()), (wanted, Some(field)), "{body}: {}", answer.1);
    }
    for (method, path, body, wanted) in [
        ("PATCH", "/schedules/n", r#"{"name": "m"}"#, (422, "invalid_field")),
        ("PATCH", "/schedules/n", r#"{"cron": "x"}"#, (422, "invalid_field")),
        ("PATCH", "/schedules/x", r#"{"every": 60}"#, (404, "not_found")),
        ("PATCH", "/schedules/n", "[]", (400, "bad_json")),
        ("POST", "/schedules/n/pause", r#"{"why": "x"}"#, (422, "unknown_field")),
        ("POST", "/schedules/n/pause", r#"{"reason": 5}"#, (422, "invalid_field")),
        ("POST", "/schedules/x/pause", "", (404, "not_found")),
        ("POST", "/schedules/x/run", "", (404, "not_found")),
        ("POST", "/schedules/n/run", r#"{"a": 1}"#, (400, "bad_json")),
        ("PUT", "/schedules/n", "{}", (405, "method_not_allowed")),
    ] {
        assert_eq!(code(&bed.send(method, path, body).await), wanted, "{method} {path} {body}");
    }
    for path in ["/schedules/x", "/schedules/x/ticks", "/schedules/x/plan", "/schedules/x/why"] {
        assert_eq!(code(&bed.get(path).await), (404, "not_found"), "{path}");
    }
    for path in ["/schedules?limit=0", "/schedules/n/ticks?before=now", "/schedules/n/plan?limit=201"] {
        assert_eq!(code(&bed.get(path).await), (422, "invalid_field"), "{path}");
    }
    bed.end().await;
}

#[tokio::test]
async fn by_hand_and_by_the_clock_it_makes_jobs_that_know_their_tick() {
    let bed = Bed::new().await;
    make(&bed, json!({"name": "n", "every": 3600, "job": {"task": "echo", "args": [7]}})).await;
    let (status, run) = bed.post("/schedules/n/run", "{}").await;
    assert_eq!((status, &run["schedule"]), (201, &json!("n")));
    let id = run["task_id"].as_str().unwrap();
    let job = bed.reach(id, "success").await;
    assert_eq!((&job["schedule"], &job["tick"], &job["result"]), (&json!("n"), &run["tick"], &json!([7])));
    assert_eq!(job["root_id"], job["task_id"]);
    let (_, ticks) = bed.get("/schedules/n/ticks").await;
    let tick = &ticks["ticks"][0];
    assert_eq!(
        (&tick["outcome"], &tick["reason"], &tick["state"]),
        (&json!("run"), &json!("by_hand"), &json!("success"))
    );
    assert_eq!((&tick["task_id"], &tick["count"], &ticks["next_before"]), (&json!(id), &json!(1), &json!(null)));
    assert_eq!(bed.get("/schedules/n").await.1["last_tick"], *tick);
    let before = tick["tick"].as_str().unwrap();
    assert_eq!(bed.get(&format!("/schedules/n/ticks?limit=1&before={before}")).await.1["ticks"], json!([]));

    make(&bed, json!({"name": "fast", "every": 1, "job": {"task": "echo"}})).await;
    for _ in 0..400 {
        let (_, ticks) = bed.get("/schedules/fast/ticks").await;
        if ticks["ticks"].as_array().unwrap().iter().any(|tick| tick["state"] == "success") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let (_, _, page) = bed.text("/metrics").await;
    assert!(page.contains("rea_ticks_total{outcome=\"run\"}") && page.contains("rea_tick_lag_seconds_count"), "{page}");
    let (_, plan) = bed.get("/schedules/fast/plan?limit=3").await;
    assert_eq!((plan["fires"].as_array().unwrap().len(), &plan["reading"]), (3, &json!("Every second")));
    let forecast = &plan["forecast"];
    assert_eq!(
        (&forecast["overlaps"], &forecast["shortest_gap"], &forecast["overlap"]),
        (&json!(0), &json!(1.0), &json!("skip"))
    );
    bed.end().await;
}

#[tokio::test]
async fn why_tells_what_a_schedule_waits_for() {
    let bed = Bed::new().await;
    make(&bed, json!({"name": "n", "every": 3600, "job": {"task": "hang", "timeout": null}})).await;
    let why = |bed: &Bed| {
        let bed = bed.api.clone();
        async move {
            let request = axum::http::Request::get("/schedules/n/why").header("host", "localhost");
            let response = bed.answer(request.body(axum::body::Body::empty()).unwrap()).await;
            crate::bed::read(response).await.1
        }
    };
    let idle = why(&bed).await;
    assert_eq!((&idle["schedule"], &idle["blocked_by"]), (&json!("n"), &json!("time")), "{idle}");
    assert!(idle["summary"].as_str().unwrap().starts_with("its next tick, in "), "{idle}");
    let (_, run) = bed.post("/schedules/n/run", "{}").await;
    bed.reach(run["task_id"].as_str().unwrap(), "running").await;
    let live = why(&bed).await;
    assert_eq!(live["blocked_by"], "overlap", "{live}");
    assert!(live["summary"].as_str().unwrap().contains(run["task_id"].as_str().unwrap()), "{live}");
    assert_eq!(live["ticks"][0]["state"], "running");
    bed.post("/schedules/n/pause", r#"{"reason": "a move"}"#).await;
    let paused = why(&bed).await;
    assert_eq!(paused["blocked_by"], "pause");
    assert!(paused["summary"].as_str().unwrap().contains("a move"), "{paused}");
    let gates: Vec<&str> =
        paused["gates"].as_array().unwrap().iter().map(|gate| gate["gate"].as_str().unwrap()).collect();
    assert_eq!(gates, ["rule", "pause", "task", "server", "overlap", "time"]);
    bed.end().await;
}

#[tokio::test]
async fn plan_tells_days_on_which_clocks_change() {
    let bed = Bed::new().await;
    let body = json!({"name": "n", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "job": {"task": "echo"}});
    make(&bed, body).await;
    let (_, plan) = bed.get("/schedules/n/plan").await;
    let changes = plan["clock_changes"].as_array().unwrap();
    assert!((2..=3).contains(&changes.len()), "{plan}");
    let notes: Vec<&str> = changes.iter().map(|change| change["fires"][0]["note"].as_str().unwrap()).collect();
    assert!(
        notes.iter().any(|note| note.contains("left out")) && notes.iter().any(|note| note.contains("twice")),
        "{plan}"
    );
    assert_eq!((plan["fires"].as_array().unwrap().len(), &plan["forecast"]), (5, &json!(null)));
    bed.end().await;
}
