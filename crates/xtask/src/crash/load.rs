//! The load of a crash run: clients that enqueue, repeat what they lost the answer of, cancel, retry and pause, and keep
//! their own list of everything that the server acknowledged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ax_model::{Chance, JobId, Timestamp};
use serde_json::{Value, json};

use crate::http::{Answer, Connection};

/// Tasks with their weights.
const TASKS: &[(&str, u64)] = &[
    ("quick", 60),
    ("flaky", 12),
    ("slow", 8),
    ("hopeless", 5),
    ("careful", 5),
    ("aside", 4),
    (RELIC, 4),
    ("family", 2),
    ("dying", 2),
    ("stuck", 1),
];
/// Jobs that the run makes old, so that there is something to prune: nobody counts on them.
pub(super) const RELIC: &str = "relic";
/// Keys in use at a time; each is asked for again and again.
const KEYS: u64 = 40;
/// Most jobs in one batch.
const BATCH: u64 = 30;

/// The schedule that clients make, steer and fire.
pub(super) const SCHEDULE: &str = "crash";

/// One job whose enqueue call returned success.
#[derive(Clone, Debug)]
pub(super) struct Ack {
    pub(super) id: String,
    pub(super) key: Option<String>,
    pub(super) task: String,
    /// As JSON.
    pub(super) args: String,
    /// As the answer said.
    pub(super) created: bool,
}

/// A job that was at its end when a client looked.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) state: String,
}

/// What the clients share with the run.
pub(super) struct Load {
    /// Where the server listens; `None` while there is none.
    url: Mutex<Option<String>>,
    over: AtomicBool,
    /// Jobs that may still be asked for in this cycle.
    budget: AtomicI64,
    acks: Mutex<Vec<Ack>>,
    seen: Mutex<Vec<Seen>>,
    /// What the server answered that it must never answer.
    wrong: Mutex<Vec<String>>,
}

impl Load {
    pub(super) fn new() -> Arc<Load> {
        Arc::new(Load {
            url: Mutex::default(),
            over: AtomicBool::new(false),
            budget: AtomicI64::new(0),
            acks: Mutex::default(),
            seen: Mutex::default(),
            wrong: Mutex::default(),
        })
    }

    /// A server is ready at `url`, and takes `jobs` more jobs; `None` = it is gone.
    pub(super) fn set_server(&self, url: Option<&str>, jobs: i64) {
        *lock(&self.url) = url.map(str::to_owned);
        self.budget.store(jobs, Ordering::Relaxed);
    }

    /// Clients end after their current request.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn acks(&self) -> Vec<Ack> {
        lock(&self.acks).clone()
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }

    pub(super) fn wrong(&self) -> Vec<String> {
        lock(&self.wrong).clone()
    }

    fn url(&self) -> Option<String> {
        lock(&self.url).clone()
    }

    /// Takes `n` jobs out of the budget; `false` = there is not as much left.
    fn take(&self, n: i64) -> bool {
        self.budget.load(Ordering::Relaxed) >= n && self.budget.fetch_sub(n, Ordering::Relaxed) >= n
    }

    fn complain(&self, what: String) {
        lock(&self.wrong).push(what);
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request to store jobs.
struct Asked {
    path: &'static str,
    /// One request, or an array of them.
    body: Value,
}

impl Asked {
    fn jobs(&self) -> &[Value] {
        let many = self.body.as_array().or_else(|| self.body["nodes"].as_array());
        many.map_or(std::slice::from_ref(&self.body), Vec::as_slice)
    }
}

/// One client; runs in a thread of its own until the load ends.
pub(super) struct Client {
    load: Arc<Load>,
    chance: Chance,
    /// A request whose answer was lost: repeated first of all, unchanged.
    lost: Option<Asked>,
    /// Ids that this client knows, for acts on them.
    known: Vec<String>,
    /// Flows that it has asked for.
    flows: Vec<String>,
    /// Keys that it knows to have a job.
    keys: BTreeSet<String>,
    /// Which keys are in use moves on with this.
    round: u64,
}

impl Client {
    pub(super) fn new(load: Arc<Load>, seed: u64) -> Client {
        Client {
            load,
            chance: Chance::new(seed),
            lost: None,
            known: Vec::new(),
            flows: Vec::new(),
            keys: BTreeSet::new(),
            round: 0,
        }
    }

    pub(super) fn run(mut self) {
        let mut at: Option<(String, Connection)> = None;
        while !self.load.over.load(Ordering::Relaxed) {
            let Some(url) = self.load.url() else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let connection = match &mut at {
                Some((known, connection)) if *known == url => connection,
                _ => &mut at.insert((url.clone(), Connection::new(&url, Duration::from_secs(10)))).1,
            };
            self.round += 1;
            self.step(connection);
            std::thread::sleep(Duration::from_millis(1 + self.below(8)));
        }
    }

    /// One request.
    fn step(&mut self, to: &mut Connection) {
        if let Some(asked) = self.lost.take() {
            return self.ask(to, asked);
        }
        match self.below(116) {
            100..108 => self.flow(to),
            108..116 => self.act_on_flow(to),
            0..50 if self.load.take(1) => {
                let body = self.job(None);
                self.ask(to, Asked { path: "/enqueue", body });
            }
            50..65 if self.load.take(1) => {
                let key = self.key();
                let body = self.job(Some(key));
                self.ask(to, Asked { path: "/enqueue", body });
            }
            65..75 => {
                let n = 2 + self.below(BATCH - 1);
                if self.load.take(n.cast_signed()) {
                    let body = self.batch(n);
                    self.ask(to, Asked { path: "/jobs", body });
                }
            }
            75..83 => self.act(to, "cancel"),
            83..88 => self.act(to, "retry"),
            88..91 => self.conflict(to),
            91..96 => {
                let verb = if self.below(3) == 0 { "pause" } else { "resume" };
                let _ = to.post(&format!("/queues/side/{verb}"), "{}");
            }
            96..98 => self.tick(to),
            _ => self.look(to),
        }
    }

    /// Makes the schedule, steers it or fires it. Its own ticks go on meanwhile.
    fn tick(&mut self, to: &mut Connection) {
        let made = json!({ "name": SCHEDULE, "every": 1, "overlap": "queue", "job": { "task": "crash_tasks:quick", "args": [1] } });
        let (path, body) = match self.below(6) {
            0 => ("/schedules".to_owned(), made.to_string()),
            1 => (format!("/schedules/{SCHEDULE}/pause"), "{}".to_owned()),
            2 | 3 => (format!("/schedules/{SCHEDULE}/resume"), "{}".to_owned()),
            _ => (format!("/schedules/{SCHEDULE}/run"), "{}".to_owned()),
        };
        let _ = to.post(&path, &body);
    }

    /// A request for a job. What a key stands for never changes. An id is made here for those without a key, because only
    /// then may a lost request be repeated.
    fn job(&mut self, key: Option<String>) -> Value {
        let (task, n) = match &key {
            Some(key) => ("quick", key.bytes().map(u64::from).sum()),
            None => (self.task(), self.below(1000)),
        };
        let mut body = json!({ "task": format!("crash_tasks:{task}"), "args": [n] });
        match &key {
            Some(key) => body["key"] = json!(key),
            None => body["task_id"] = json!(self.new_id()),
        }
        if task == "aside" {
            body["start_before"] = json!(rfc3339_in(&mut self.chance, 200, 1500));
        } else if self.below(10) == 0 {
            body["delay"] = json!(f64::from(u32::try_from(self.below(900)).unwrap_or(0)) / 1000.0);
        }
        if self.below(4) == 0 {
            body["priority"] = json!(1 + self.below(10));
        }
        body
    }

    fn batch(&mut self, n: u64) -> Value {
        let mut bodies: Vec<Value> = Vec::new();
        for _ in 0..n {
            let key = (self.below(5) == 0).then(|| self.key());
            // Twice the same key in one batch is allowed, but says nothing new.
            let key = key.filter(|k| !bodies.iter().any(|body| body["key"] == **k));
            bodies.push(self.job(key));
        }
        Value::Array(bodies)
    }

    /// A flow of a few jobs, each of which waits for some of those before it.
    fn flow(&mut self, to: &mut Connection) {
        let n = 2 + self.below(5);
        if !self.load.take(n.cast_signed()) {
            return;
        }
        let mut nodes: Vec<Value> = Vec::new();
        for node in 0..n {
            let mut body = self.job(None);
            let kinds = ["success", "success", "failure", "finished"];
            let parents = (0..node).filter(|_| self.below(3) == 0).collect::<Vec<_>>();
            let edge = |parent: u64| json!({ "node": format!("n{parent}"), "on": kinds[self.below(4) as usize % 4] });
            body["depends_on"] = parents.into_iter().map(edge).collect();
            body["name"] = json!(format!("n{node}"));
            // A repeat of the same flow after its time would be refused for that.
            body.as_object_mut().map(|fields| fields.remove("start_before"));
            nodes.push(body);
        }
        let id = self.new_id();
        let retry = if self.below(2) == 0 { "all" } else { "failed" };
        let body = json!({ "name": "crash", "flow_id": id, "max_attempts": 1 + self.below(2), "retry": retry, "nodes": nodes });
        self.flows.push(id);
        self.ask(to, Asked { path: "/flows", body });
    }

    /// Cancels or runs again one of the flows that it asked for lately.
    fn act_on_flow(&mut self, to: &mut Connection) {
        let back = usize::try_from(self.below(6) + 1).unwrap_or(1);
        let Some(id) = self.flows.len().checked_sub(back).and_then(|at| self.flows.get(at)).cloned() else { return };
        let verb = if self.below(3) == 0 { "cancel" } else { "retry" };
        match to.post(&format!("/flows/{id}/{verb}"), "{}") {
            // 404: its submission was lost. 409: it has ended, has not, or was run again.
            Ok(answer) if answer.is_success() || matches!(answer.status, 404 | 409 | 503) => {}
            Ok(answer) => {
                self.load.complain(format!("{verb} of flow {id} was answered {} {}", answer.status, answer.body));
            }
            Err(_) => {}
        }
    }

    fn ask(&mut self, to: &mut Connection, asked: Asked) {
        match to.post(asked.path, &asked.body.to_string()) {
            Ok(answer) if answer.is_success() => self.note(&asked, &answer),
            // Busy or shutting down: nothing was stored, or it was and the repeat will say so.
            Ok(answer) if answer.status == 503 || answer.status == 429 => self.lost = Some(asked),
            // Between asking and answering its time had passed, or the repeat came too late for it: rightly refused.
            Ok(answer) if matches!(answer.status, 400 | 422) && asked.body.to_string().contains("start_before") => {}
            Ok(answer) => {
                self.load
                    .complain(format!("{} {} was answered {} {}", asked.path, asked.body, answer.status, answer.body));
            }
            Err(_) => self.lost = Some(asked),
        }
    }

    /// Writes an acknowledged enqueue down.
    fn note(&mut self, asked: &Asked, answer: &Answer) {
        let answer = answer.json();
        let (one, many) = (vec![answer.clone()], answer["jobs"].as_array());
        let said = many.unwrap_or(&one);
        if said.len() != asked.jobs().len() {
            return self.load.complain(format!("{} jobs were asked for: {answer}", asked.jobs().len()));
        }
        for (body, said) in asked.jobs().iter().zip(said) {
            let created = said["created"].as_bool().or_else(|| answer["created"].as_bool());
            let (Some(id), Some(created)) = (said["task_id"].as_str(), created) else {
                return self.load.complain(format!("an answer without id: {said}"));
            };
            if body["task_id"].as_str().is_some_and(|asked| asked != id) {
                self.load.complain(format!("job {} was answered with another id: {said}", body["task_id"]));
            }
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let key = text(&body["key"]);
            let task = text(&body["task"]).unwrap_or_default();
            if task.ends_with(RELIC) {
                continue;
            }
            self.keys.extend(key.clone());
            self.known.push(id.to_owned());
            let ack = Ack { id: id.to_owned(), key, task, args: body["args"].to_string(), created };
            lock(&self.load.acks).push(ack);
        }
    }

    /// Cancels or retries one of the jobs that it asked for lately.
    fn act(&mut self, to: &mut Connection, verb: &str) {
        let Some(id) = self.recent() else { return };
        match to.post(&format!("/jobs/{id}/{verb}"), "{}") {
            // 409: it has ended, or it has not.
            Ok(answer) if answer.is_success() || matches!(answer.status, 409 | 503) => {}
            Ok(answer) => self.load.complain(format!("{verb} of {id} was answered {} {}", answer.status, answer.body)),
            Err(_) => {}
        }
    }

    /// Looks at a job; one that is at its end must stay so.
    fn look(&mut self, to: &mut Connection) {
        let Some(id) = self.recent() else { return };
        let Ok(answer) = to.get(&format!("/jobs/{id}")) else { return };
        if answer.status == 404 {
            return self.load.complain(format!("job {id} was acknowledged and is not there"));
        }
        // A skipped job follows its upstream when a client retries that: `flows` looks at these.
        if let Some(state) = answer.json()["state"].as_str()
            && matches!(state, "success" | "dead" | "cancelled")
        {
            lock(&self.load.seen).push(Seen { id, state: state.to_owned() });
        }
    }

    /// One of the last jobs that it asked for.
    fn recent(&mut self) -> Option<String> {
        let back = usize::try_from(self.below(50) + 1).unwrap_or(1);
        self.known.get(self.known.len().checked_sub(back)?).cloned()
    }

    /// The same key with other content must be refused.
    fn conflict(&mut self, to: &mut Connection) {
        let Some(key) = self.keys.first() else { return };
        let body = json!({ "task": "crash_tasks:quick", "args": ["other"], "key": key });
        match to.post("/enqueue", &body.to_string()) {
            Ok(answer) if answer.is_success() => {
                self.load.complain(format!("key {key} took other content: {}", answer.body))
            }
            _ => {}
        }
    }

    fn key(&mut self) -> String {
        // The window of keys moves, so that old ones are asked for again after restarts and new ones keep coming.
        format!("key-{}", self.round / 100 * 10 + self.below(KEYS))
    }

    fn task(&mut self) -> &'static str {
        let mut at = self.below(TASKS.iter().map(|(_, weight)| weight).sum());
        for (task, weight) in TASKS {
            if at < *weight {
                return task;
            }
            at -= weight;
        }
        TASKS[0].0
    }

    fn new_id(&mut self) -> String {
        JobId::new(now(), &mut self.chance).to_string()
    }

    fn below(&mut self, n: u64) -> u64 {
        self.chance.next_u64() % n
    }
}

fn now() -> Timestamp {
    ax_model::Clock::now(&ax::SystemClock)
}

/// An instant some milliseconds from now, as the wire wants it.
fn rfc3339_in(chance: &mut Chance, least_ms: u64, most_ms: u64) -> String {
    let ms = least_ms + chance.next_u64() % (most_ms - least_ms);
    rea::wire::time::text(now().plus_ms(ms))
}
