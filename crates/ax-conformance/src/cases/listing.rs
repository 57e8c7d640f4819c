//! What people look at: lists page by page, filters, and counts.

use std::collections::{HashMap, HashSet};

use ax_model::lifecycle::Failure;
use ax_model::store::{Cursor, DayTotals, Filter, LISTED_BYTES, LISTED_MESSAGE, Matching};
use ax_model::{Cause, ErrorInfo, Event, Job, JobId, JobRequest, NodeId, OnCrash, State, Timestamp};

use crate::cases::of_task;
use crate::harness::{Harness, done};

const TASK: &str = "list:f";

fn job() -> JobRequest {
    JobRequest::new(TASK, "[1]")
}

fn ids(jobs: &[Job]) -> Vec<JobId> {
    jobs.iter().map(|job| job.spec.id).collect()
}

pub(super) fn every_filter_finds_its_jobs(h: &mut Harness) {
    let a = h.add(JobRequest {
        queue: Some("list q".to_owned()),
        tags: vec!["red".to_owned(), "blue".to_owned()],
        trace_id: Some("trace-a".to_owned()),
        key: Some("list key".to_owned()),
        ..job()
    });
    let b = h.add(JobRequest { tags: vec!["red".to_owned()], delay_ms: Some(1_000), ..job() });
    let c = h.add(JobRequest::new("list:g", "[]"));
    let attempt = h.take("list:g").attempt;
    h.start(attempt);
    let any = Filter::default;
    let text = |t: &str| Some(t.to_owned());
    let cases = [
        (Filter { task: text(TASK), ..any() }, vec![b, a]),
        (Filter { queue: text("list q"), ..any() }, vec![a]),
        (Filter { tag: text("red"), ..any() }, vec![b, a]),
        (Filter { tag: text("blue"), ..any() }, vec![a]),
        (Filter { trace_id: text("trace-a"), ..any() }, vec![a]),
        (Filter { trace_id: text(&c.simple()), ..any() }, vec![c]),
        (Filter { root_id: Some(b), ..any() }, vec![b]),
        (Filter { key: text("list key"), ..any() }, vec![a]),
        (Filter { ready: true, ..of_task(TASK) }, vec![a]),
        (Filter { states: vec![State::Running, State::Dispatched], ..of_task("list:g") }, vec![c]),
        (Filter { states: vec![State::Pending], ..of_task(TASK) }, vec![b, a]),
        (Filter { states: State::ALL.to_vec(), ..of_task(TASK) }, vec![b, a]),
        (Filter { task: text("list:"), ..any() }, vec![]),
        (Filter { tag: text("RED"), ..any() }, vec![]),
        (Filter { tag: text("re"), ..any() }, vec![]),
    ];
    for (filter, expected) in cases {
        for page in [1, 2, 100] {
            assert_eq!(ids(&h.walk(&filter, page)), expected, "{filter:?} by {page}");
        }
    }
    let running = h.walk(&Filter { states: vec![State::Running], ..any() }, 100);
    assert!(running.iter().all(|job| job.life.state == State::Running) && ids(&running).contains(&c));
    h.clock.advance(1_000);
    assert_eq!(ids(&h.walk(&Filter { ready: true, ..of_task(TASK) }, 100)), [b, a]);
}

/// What a beginning of an id is found by.
pub(super) fn ids_are_found_by_their_range(h: &mut Harness) {
    let named = |text: &str| text.parse::<JobId>().expect("an id");
    let all = [
        "abcd0000-0000-7000-8000-000000000000",
        "abcd0000-0000-7000-8000-000000000001",
        "abcdffff-ffff-ffff-ffff-ffffffffffff",
    ]
    .map(named);
    h.add(JobRequest { id: Some(named("abccffff-ffff-ffff-ffff-ffffffffffff")), ..job() });
    for id in all {
        h.add(JobRequest { id: Some(id), ..job() });
    }
    let (first, last) = JobId::range_of_prefix("abcd").expect("a beginning");
    assert_eq!(h.ids(first, last, 10), [all[2], all[1], all[0]]);
    assert_eq!(h.ids(first, last, 2), [all[2], all[1]]);
    assert_eq!(h.ids(all[1], all[1], 10), [all[1]]);
    assert!(h.ids(last, first, 10).is_empty());
}

pub(super) fn filters_are_joined_by_and(h: &mut Harness) {
    let tag = |t: &str| vec![t.to_owned(), "both".to_owned()];
    let a = h.add(JobRequest { tags: tag("x"), queue: Some("list q".to_owned()), ..job() });
    h.add(JobRequest { tags: tag("y"), queue: Some("list q".to_owned()), ..job() });
    h.add(JobRequest { tags: tag("x"), ..job() });
    let text = |t: &str| Some(t.to_owned());
    let full = Filter {
        states: vec![State::Pending, State::Held],
        ready: true,
        queue: text("list q"),
        tag: text("x"),
        trace_id: text(&a.simple()),
        root_id: Some(a),
        ..of_task(TASK)
    };
    assert_eq!(ids(&h.walk(&full, 10)), [a]);
    for none in [
        Filter { states: vec![State::Dead], ..full.clone() },
        Filter { key: text("no"), ..full.clone() },
        Filter { tag: text("y"), ..full.clone() },
        Filter { root_id: Some(h.new_id()), ..full.clone() },
    ] {
        assert_eq!(ids(&h.walk(&none, 10)), vec![], "{none:?}");
    }
    assert_eq!(h.walk(&Filter { tag: text("both"), queue: text("list q"), ..Filter::default() }, 10).len(), 2);
}

/// C108: lists that load whole payloads break.
pub(super) fn c108_lists_leave_out_large_arguments_and_results(h: &mut Harness) {
    let long = format!("[\"{}\"]", "x".repeat(LISTED_BYTES));
    let small = h.add(JobRequest { kwargs: r#"{"a":1}"#.to_owned(), tags: vec!["t2".to_owned()], ..job() });
    let large = h.add(JobRequest { args: long.clone(), ..job() });
    for attempt in [h.take(TASK).attempt, h.take(TASK).attempt] {
        let result = if attempt.id == large { long.clone() } else { "null".to_owned() };
        let event = Event::Succeeded { fence: attempt.fence, started_at: h.now(), result };
        h.tell(attempt, event).expect("its lease is held");
    }
    let jobs = done(h.store().list(of_task(TASK), None, 10)).jobs;
    let (whole, mut expected) = (h.job(small), h.job(large));
    assert_eq!((expected.spec.args.as_str(), expected.result.as_deref()), (long.as_str(), Some(long.as_str())));
    expected.spec.args.clear();
    expected.result = None;
    assert_eq!((&jobs[0].job, &jobs[1].job), (&expected, &whole), "what is small is listed, what is large is not");
    assert_eq!((jobs[0].args_bytes, jobs[0].kwargs_bytes, jobs[0].result_bytes), (long.len(), 2, Some(long.len())));
    assert_eq!((jobs[1].args_bytes, jobs[1].kwargs_bytes, jobs[1].result_bytes), (3, 7, Some(4)));
}

/// C108 of errors: a traceback may be as long as a payload.
pub(super) fn c108_lists_cut_long_errors(h: &mut Harness) {
    let (short, long) = (h.add(job()), h.add(job()));
    for attempt in [h.take(TASK).attempt, h.take(TASK).attempt] {
        let message = if attempt.id == long { "\u{e9}".repeat(100_000) } else { "it broke".to_owned() };
        let error =
            ErrorInfo { traceback: Some("File …".to_owned()), ..ErrorInfo::new(Cause::Fatal, "Boom", message) };
        let (fence, failure) = (attempt.fence, Failure::Fatal);
        let event = Event::Failed { fence, started_at: h.now(), failure, error, after_ms: None };
        h.tell(attempt, event).expect("its lease is held");
    }
    let jobs = done(h.store().list(of_task(TASK), None, 10)).jobs;
    let cut = ErrorInfo::new(Cause::Fatal, "Boom", "\u{e9}".repeat(LISTED_MESSAGE));
    assert_eq!((&jobs[0].job.last_error, &jobs[1].job.last_error), (&Some(cut), &h.job(short).last_error));
    assert!(h.job(long).last_error.is_some_and(|error| error.message.len() == 200_000 && error.traceback.is_some()));
}

/// C112: 5,000 jobs of one moment, walked by 100 while their states change and others come.
pub(super) fn c112_a_walk_sees_every_job_once_while_states_change(h: &mut Harness) {
    let all: HashSet<JobId> = h.add_all((0..5_000).map(|_| job()).collect()).into_iter().collect();
    let mut seen: HashMap<JobId, usize> = HashMap::new();
    let mut after: Option<Cursor> = None;
    for page in 0.. {
        let got = done(h.store().list(of_task(TASK), after, 100));
        for listed in &got.jobs {
            *seen.entry(listed.job.spec.id).or_default() += 1;
        }
        let Some(next) = got.next else { break };
        after = Some(next);
        assert!(page < 60, "a walk must end");
        if page % 5 == 0 {
            for (n, claimed) in h.claim(&[TASK], 5).into_iter().enumerate() {
                match n {
                    0 => h.succeed(claimed.attempt),
                    1 => assert_eq!(h.fail(claimed.attempt, Failure::Fatal), State::Dead),
                    2 => assert_eq!(h.fail(claimed.attempt, Failure::Error), State::Failed),
                    _ => h.start(claimed.attempt),
                }
            }
            h.add(job());
        }
    }
    assert!(all.iter().all(|id| seen.get(id) == Some(&1)), "each job once");
    assert_eq!(seen.len(), all.len(), "what came later is above the walk");
}

/// C113: the list stops at the first page without saying so.
pub(super) fn c113_the_last_page_says_so(h: &mut Harness) {
    h.add_all((0..250).map(|_| job()).collect());
    let mut sizes = vec![];
    let mut after = None;
    loop {
        let page = done(h.store().list(of_task(TASK), after, 100));
        sizes.push(page.jobs.len());
        assert!(page.jobs.len() == 100 || page.next.is_none());
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [100, 100, 50]);
    let end = done(h.store().list(of_task(TASK), Some(Cursor(0)), 100));
    assert_eq!((end.jobs.len(), end.next), (0, None));
    assert_eq!(done(h.store().list(of_task(TASK), Some(Cursor(i64::MAX)), 10)).jobs.len(), 10);
}

/// C116: names in Chinese, right-to-left, or outside the basic plane are names like any other.
pub(super) fn c115_names_in_any_script_are_found(h: &mut Harness) {
    for name in [
        "模块:函数",
        "\u{1F600}\u{1F468}\u{200D}\u{1F469}",
        "שלום:עולם",
        "é",
        "e\u{301}",
        "𝕏",
        " lead",
        "a%_b",
        "A",
        "a",
    ] {
        let id = h.add(JobRequest {
            queue: Some(name.to_owned()),
            tags: vec![name.to_owned()],
            key: Some(name.to_owned()),
            ..JobRequest::new(name, "[]")
        });
        let text = || Some(name.to_owned());
        for filter in [
            of_task(name),
            Filter { queue: text(), ..Filter::default() },
            Filter { tag: text(), ..Filter::default() },
            Filter { key: text(), ..Filter::default() },
        ] {
            assert_eq!(ids(&h.walk(&filter, 10)), [id], "{filter:?}");
        }
    }
}

/// C125, F69: text that looks like SQL in every field and every filter.
pub(super) fn c125_what_looks_like_sql_is_only_text(h: &mut Harness) {
    let nasty =
        ["'; DROP TABLE jobs;--", "x' OR '1'='1", "\" OR 1=1 --", "%", "_", "?1", "\\", "null", "1; DELETE FROM jobs"];
    let long = "x".repeat(1 << 20);
    let mine = h.add(job());
    let before = h.counts();
    for text in nasty.into_iter().chain([long.as_str()]) {
        let some = || Some(text.to_owned());
        for filter in [
            Filter { task: some(), ..Filter::default() },
            Filter { queue: some(), ..Filter::default() },
            Filter { tag: some(), ..Filter::default() },
            Filter { trace_id: some(), ..Filter::default() },
            Filter { key: some(), ..Filter::default() },
        ] {
            assert_eq!(ids(&h.walk(&filter, 10)), vec![], "{filter:?}");
        }
        assert_eq!(h.claim_as(NodeId(1), &[text], 1), vec![]);
    }
    assert_eq!((h.counts(), h.state(mine)), (before, State::Pending));
    for text in nasty {
        let id = h.add(JobRequest {
            queue: Some(text.to_owned()),
            tags: vec![text.to_owned()],
            key: Some(text.to_owned()),
            ..JobRequest::new(text, "[\"'; DROP TABLE jobs;--\"]")
        });
        let filter = Filter { tag: Some(text.to_owned()), queue: Some(text.to_owned()), ..of_task(text) };
        assert_eq!(ids(&h.walk(&filter, 10)), [id]);
        h.pause(text, true);
        assert_eq!(h.claim(&[text], 1), vec![]);
        h.pause(text, false);
        assert_eq!(h.take(text).attempt.id, id);
    }
}

pub(super) fn an_ancestor_is_found_with_its_descendants(h: &mut Harness) {
    let root = h.add(job());
    let child = h.add(JobRequest { root_id: Some(root), ..job() });
    let grandchild = h.add(JobRequest { root_id: Some(root), ..job() });
    h.add(job());
    let of = |id| Filter { root_id: Some(id), ..Filter::default() };
    assert_eq!(ids(&h.walk(&of(root), 2)), [grandchild, child, root]);
    assert_eq!(ids(&h.walk(&of(child), 2)), [child]);
    let stranger = h.new_id();
    assert_eq!(ids(&h.walk(&of(stranger), 2)), vec![]);
}

pub(super) fn counts_of_days_and_of_all_time(h: &mut Harness) {
    const DAY_US: i64 = 86_400_000_000;
    // Bystanders have been counted on the first day.
    h.clock.set(Timestamp((h.now().day() + 1) * DAY_US));
    let before = h.counts();
    assert_eq!(before.today, vec![]);
    let request = || JobRequest { max_attempts: Some(2), retry_base_ms: Some(0), ..job() };
    h.add_all((0..7).map(|_| request()).collect());
    h.add(JobRequest { on_crash: Some(OnCrash::Hold), ..JobRequest::new("list:g", "[]") });
    let taken = h.claim(&[TASK, "list:g"], 8);
    taken.iter().for_each(|c| h.start(c.attempt));
    let started_at = h.now();
    h.clock.advance(1_500);
    let end = |h: &mut Harness, n: usize, event: &dyn Fn(ax_model::lifecycle::Fence) -> Event| {
        h.tell(taken[n].attempt, event(taken[n].attempt.fence)).expect("its lease is held");
    };
    end(h, 0, &|fence| Event::Succeeded { fence, started_at, result: "1".to_owned() });
    end(h, 1, &|fence| Event::Stopped { fence, started_at: Some(started_at) });
    let error = || ax_model::ErrorInfo::new(ax_model::Cause::Error, "E", "");
    let fail = |failure| move |fence| Event::Failed { fence, started_at, failure, error: error(), after_ms: None };
    end(h, 2, &fail(Failure::Error));
    end(h, 3, &fail(Failure::Fatal));
    end(h, 4, &fail(Failure::Timeout));
    end(h, 5, &|fence| Event::Interrupted { fence, started_at, error: error() });
    end(h, 7, &fail(Failure::Crashed));
    let day = |task: &str, n: [u64; 5]| {
        let [succeeded, failed, dead, run_us, runs] = n;
        DayTotals { task: task.to_owned(), succeeded, failed, dead, run_us, runs }
    };
    // The held one has neither failed nor died; the one still running is not counted.
    let expected = vec![day(TASK, [1, 2, 1, 9_000_000, 6]), day("list:g", [0, 0, 0, 1_500_000, 1])];
    assert_eq!(sorted(h.counts().today), expected);
    // Going back to `failed` without having begun is no second failure.
    let again = h.claim(&[TASK], 3);
    assert_eq!(again.len(), 3);
    let back = again.iter().find(|c| c.failures > 0).expect("two of three").attempt;
    assert_eq!(h.tell(back, Event::HandedBack { fence: back.fence }).map(|a| a.life.state), Ok(State::Failed));
    h.recover_all();
    h.reopen();
    let expected = day(TASK, [1, 2, 1, 10_500_000, 7]);
    assert_eq!(sorted(h.counts().today)[0], expected, "one more run, of the attempt whose node was gone");
    // The next day begins at nothing; the sum of all time goes on.
    h.clock.set(Timestamp((h.now().day() + 1) * DAY_US));
    assert_eq!(h.counts().today, vec![]);
    h.ask_of(taken[7].attempt.id, Event::SuccessAsked).expect("is held");
    assert_eq!(h.counts().today, [day("list:g", [1, 0, 0, 0, 0])]);
    let totals = h.counts().totals;
    let more = |f: fn(&DayTotals) -> u64| f(&totals) - f(&before.totals);
    assert_eq!([more(|t| t.succeeded), more(|t| t.failed), more(|t| t.dead), more(|t| t.runs)], [2, 2, 1, 8]);
    assert_eq!(totals.task, "");
    h.clock.set(Timestamp((h.now().day() - 1) * DAY_US));
    assert_eq!(sorted(h.counts().today)[0], expected, "a day is found again");
}

pub(super) fn queues_are_told_with_their_counts(h: &mut Harness) {
    let queue = |name: &str| JobRequest { queue: Some(name.to_owned()), ..job() };
    h.add_all(vec![queue("list a"), queue("list a"), queue("list b")]);
    h.pause("list c", true);
    let attempt = h.take(TASK).attempt;
    h.succeed(attempt);
    let told = done(h.store().queues());
    let of = |name: &str| told.iter().find(|q| q.name == name).map(|q| (q.paused, q.by_state[0], q.by_state[4]));
    assert_eq!(of("list a"), Some((false, 1, 1)));
    assert_eq!(of("list b"), Some((false, 1, 0)));
    assert_eq!(of("list c"), Some((true, 0, 0)));
    assert_eq!(of("bystanders").map(|(paused, ..)| paused), Some(false));
    let pruned = done(h.store().prune(vec![(State::Success, Timestamp::MAX)], 100));
    assert!(pruned.deleted.len() <= 1);
}

/// C113: a list says how many there are in all.
pub(super) fn c113_what_matches_is_counted(h: &mut Harness) {
    let tagged = JobRequest { tags: vec!["counted".to_owned()], queue: Some("count q".to_owned()), ..job() };
    h.add_all(vec![tagged; 30]);
    h.add_all(vec![JobRequest { delay_ms: Some(60_000), ..JobRequest::new("list:g", "[]") }; 5]);
    for claimed in h.claim(&[TASK], 10) {
        h.succeed(claimed.attempt);
    }
    let count = |filter: &Filter, cap| done(h.store().matching(filter.clone(), cap));
    let exactly = |count| Matching { count, more: false };
    let text = |t: &str| Some(t.to_owned());
    let tag = Filter { tag: text("counted"), ..Filter::default() };
    assert_eq!(count(&tag, 100), exactly(30));
    assert_eq!(count(&tag, 30), exactly(30));
    assert_eq!(count(&tag, 29), Matching { count: 29, more: true });
    assert_eq!(count(&Filter { states: vec![State::Success], ..tag.clone() }, 100), exactly(10));
    assert_eq!(count(&Filter { states: vec![State::Success], ..of_task(TASK) }, 100), exactly(10));
    assert_eq!(count(&Filter { queue: text("count q"), ..Filter::default() }, 100), exactly(30));
    assert_eq!(count(&Filter { ready: true, ..of_task(TASK) }, 100), exactly(20));
    assert_eq!(count(&Filter { ready: true, ..of_task("list:g") }, 100), exactly(0));
    assert_eq!(count(&of_task("list:none"), 100), exactly(0));
    assert_eq!(count(&Filter::default(), 1_000).count, h.counts().by_state.iter().sum::<u64>());
}

/// Few jobs of one task among many of another, in every state, are found and told in order.
pub(super) fn few_of_many_are_found_in_every_state(h: &mut Harness) {
    let of = |task: &str, n: usize| vec![JobRequest::new(task, "[]"); n];
    h.add_all(of("list:few", 3));
    h.add_all(of("list:many", 5_000));
    let late = h.add_all(of("list:few", 4));
    let taken = h.claim(&["list:few"], 6);
    h.succeed(taken[0].attempt);
    assert_eq!(h.fail(taken[1].attempt, Failure::Fatal), State::Dead);
    assert_eq!(h.fail(taken[2].attempt, Failure::Error), State::Failed);
    h.start(taken[3].attempt);
    let waiting = late[3];
    h.ask_of(late[2], Event::CancelAsked).expect("it is dispatched");
    for page in [1, 2, 50] {
        assert_eq!(h.walk(&of_task("list:few"), page).len(), 7);
        let mixed = Filter { states: vec![State::Pending, State::Success, State::Dead], ..of_task("list:few") };
        let expected = [waiting, taken[1].attempt.id, taken[0].attempt.id];
        assert_eq!(ids(&h.walk(&mixed, page)), expected, "by {page}");
        let aside = Filter { states: vec![State::Dead, State::Failed, State::Running], ..of_task("list:few") };
        let expected = [taken[3].attempt.id, taken[2].attempt.id, taken[1].attempt.id];
        assert_eq!(ids(&h.walk(&aside, page)), expected, "by {page}");
    }
}

pub(super) fn lanes_are_told_with_their_sums(h: &mut Harness) {
    let started_at = h.now();
    h.add_all(vec![JobRequest { queue: Some("lane q".to_owned()), ..job() }; 3]);
    let attempt = h.take(TASK).attempt;
    h.start(attempt);
    h.clock.advance(2_000);
    h.tell(attempt, Event::Succeeded { fence: attempt.fence, started_at, result: "1".to_owned() }).expect("is held");
    h.reopen();
    let lanes = done(h.store().lanes());
    let lane = lanes.iter().find(|l| l.queue == "lane q" && l.task == TASK).expect("it has had jobs");
    assert_eq!((lane.by_state[State::Pending as usize], lane.by_state[State::Success as usize]), (2, 1));
    assert_eq!((lane.totals.succeeded, lane.totals.runs, lane.totals.run_us), (1, 1, 2_000_000));
    assert_eq!(lane.oldest_ready, Some(started_at));
    let mut sums = [0; 9];
    lanes.iter().for_each(|l| sums.iter_mut().zip(l.by_state).for_each(|(sum, n)| *sum += n));
    assert_eq!(sums, h.counts().by_state);
}

fn sorted(mut days: Vec<DayTotals>) -> Vec<DayTotals> {
    days.sort_by(|a, b| a.task.cmp(&b.task));
    days
}
