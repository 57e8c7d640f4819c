//! Everything that can be seen of two stores, side by side.

use ax_model::gates::{Asker, JobWhy, QueueWhy};
use ax_model::store::{DayTotals, Filter, FlowFilter, FlowHead, HistoryEntry, Listed, Matching, Queue, Store, Swept};
use ax_model::{FlowState, Job, NodeId, State};

use super::{Pair, QUEUES, TASKS};
use crate::harness::done;

impl Pair {
    /// Everything there is to see.
    pub(super) fn compare_all(&mut self) {
        self.tell("compare".to_owned());
        for id in &self.ids {
            let job = |store: &dyn Store| done(store.get(*id)).map(|job| Job { seq: 0, ..job });
            assert_eq!(
                job(self.subject.store().as_ref()),
                job(&self.model),
                "a job: the store (left), the model (right)"
            );
            let past = |store: &dyn Store| {
                let mut entries: Vec<String> = done(store.history(*id)).iter().map(by_time).collect();
                // Of several things at one moment, or before a clock that was set back, only the set is certain.
                entries.sort();
                entries
            };
            assert_eq!(past(self.subject.store().as_ref()), past(&self.model), "the past of {id}");
        }
        let at_rest = |store: &dyn Store| {
            let found = done(store.at_rest(self.ids.clone(), usize::MAX));
            (found.jobs.into_iter().map(|job| Job { seq: 0, ..job }).collect::<Vec<_>>(), found.missing)
        };
        assert_eq!(
            at_rest(self.subject.store().as_ref()),
            at_rest(&self.model),
            "those at rest: the store (left), the model (right)"
        );
        let n = 1 + self.below(TASKS.len());
        let offers = TASKS[..n].iter().map(|t| (*t).to_owned()).collect();
        let asker = Asker { node: NodeId(1 + self.below(3) as u64), offers };
        for id in self.ids.iter().rev().take(20) {
            let why = |store: &dyn Store| {
                let why = done(store.why(*id, asker.clone()))?;
                Some(JobWhy { job: Job { seq: 0, ..why.job }, ..why })
            };
            assert_eq!(
                why(self.subject.store().as_ref()),
                why(&self.model),
                "why: the store (left), the model (right)"
            );
        }
        self.both("limits", |store| store.limits(None, 100, asker.node));
        let subject = self.subject();
        self.both("limit_use", |store| store.limit_use(subject.clone(), asker.node));
        for name in QUEUES {
            // A queue whose only job was moved on at once has nothing to tell.
            let nothing = |why: &QueueWhy| {
                why.queue == Queue { name: why.queue.name.clone(), ..Queue::default() } && why.ready == 0
            };
            let why =
                |store: &dyn Store| done(store.why_queue(name.to_owned(), asker.clone())).filter(|why| !nothing(why));
            assert_eq!(why(self.subject.store().as_ref()), why(&self.model), "why {name}: store (left), model (right)");
        }
        for id in &self.flows {
            let flow = |store: &dyn Store| {
                let flow = done(store.flow(*id))?;
                let jobs: Vec<Listed> =
                    flow.jobs.into_iter().map(|l| Listed { job: Job { seq: 0, ..l.job }, ..l }).collect();
                let mut edges = flow.edges;
                edges.sort_by_key(|(child, upstream)| (*child, upstream.edge));
                Some((FlowHead { seq: 0, ..flow.head }, jobs, edges))
            };
            assert_eq!(flow(self.subject.store().as_ref()), flow(&self.model), "a flow: store (left), model (right)");
        }
        let names = |store: &dyn Store, filter: &FlowFilter| {
            let (mut ids, mut after) = (vec![], None);
            loop {
                let page = done(store.flows(filter.clone(), after, 3));
                ids.extend(page.flows.into_iter().map(|head| head.spec.id));
                after = page.next;
                if after.is_none() {
                    return ids;
                }
            }
        };
        let all = names(&self.model, &FlowFilter::default());
        let ids = all.first().zip(all.last()).map(|(new, old)| (*old.min(new), *old.max(new)));
        let filter = FlowFilter {
            states: self.choose(&[&[][..], &[FlowState::Dead], &[FlowState::Running, FlowState::Success]]).to_vec(),
            name: self.choose(&[None, Some("f1")]).map(str::to_owned),
            ids: self.choose(&[None, ids]),
        };
        assert_eq!(names(self.subject.store().as_ref(), &filter), names(&self.model, &filter), "flows: {filter:?}");
        let sorted = |store: &dyn Store| {
            let mut counts = done(store.counts());
            counts.today.sort_by(|a, b| a.task.cmp(&b.task));
            let mut queues = done(store.queues());
            // The same for a queue.
            queues.retain(|queue| *queue != Queue { name: queue.name.clone(), ..Queue::default() });
            queues.sort_by(|a, b| a.name.cmp(&b.name));
            let mut lanes = done(store.lanes());
            // A job that was moved on at once leaves a pair of which nothing is kept.
            lanes.retain(|lane| lane.by_state != [0; 9] || lane.totals != DayTotals::default());
            lanes.sort_by(|a, b| (&a.queue, &a.task).cmp(&(&b.queue, &b.task)));
            (counts, queues, lanes)
        };
        assert_eq!(
            sorted(self.subject.store().as_ref()),
            sorted(&self.model),
            "counts: the store (left), the model (right)"
        );
        self.compare_schedules();
        let filter = Filter {
            states: self
                .choose(&[
                    &[][..],
                    &[State::Pending, State::Failed],
                    &[State::Dead],
                    &State::ALL[..3],
                    &State::ALL[4..],
                ])
                .to_vec(),
            ready: self.one_in(4),
            task: self.one_in(4).then(|| self.choose(&TASKS).to_owned()),
            queue: self.one_in(4).then(|| self.choose(&QUEUES).to_owned()),
            tag: self.one_in(4).then(|| self.choose(&["t1", "t2"]).to_owned()),
            key: self.one_in(4).then(|| self.choose(&["k1", "k2"]).to_owned()),
            ..Filter::default()
        };
        for filter in [Filter::default(), filter] {
            let walk = |store: &dyn Store| {
                let (mut jobs, mut after): (Vec<Listed>, _) = (vec![], None);
                loop {
                    let page = done(store.list(filter.clone(), after, 7));
                    jobs.extend(page.jobs);
                    assert!(jobs.is_sorted_by(|a, b| a.job.seq > b.job.seq), "newest first, and each job once");
                    after = page.next;
                    if after.is_none() {
                        let found = jobs.into_iter().map(|l| Listed { job: Job { seq: 0, ..l.job }, ..l });
                        return found.collect::<Vec<_>>();
                    }
                }
            };
            let expected = walk(&self.model);
            assert_eq!(walk(self.subject.store().as_ref()), expected, "{filter:?}");
            let count = |store: &dyn Store| done(store.matching(filter.clone(), 10_000));
            let all = Matching { count: expected.len() as u64, more: false };
            assert_eq!((count(self.subject.store().as_ref()), count(&self.model)), (all, all), "{filter:?}");
        }
        assert_eq!(done(self.subject.store().check()), Vec::<String>::new(), "the store's own check");
        assert_eq!(done(self.model.check()), Vec::<String>::new(), "the model's own check");
        assert_eq!(done(self.subject.store().sweep()), Swept::default(), "nothing waits for what has ended");
    }
}

fn by_time(entry: &HistoryEntry) -> String {
    let at = match entry {
        HistoryEntry::Attempt { ended_at, .. } => ended_at,
        HistoryEntry::Action { at, .. } => at,
    };
    format!("{:020} {entry:?}", at.0)
}
