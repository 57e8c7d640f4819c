//! Edges and flows of the plain model: every edge is looked at each time.

use std::collections::VecDeque;
use std::convert::Infallible;

use ax_model::flow::{Edge, EdgeSums, FlowCounts, FlowRetry, FlowState, Verdict, skip_reason};
use ax_model::flow_request::FLOW_TASK;
use ax_model::flow_run::{Old, Run, as_one, next_run};
use ax_model::flow_template::FlowTemplate;
use ax_model::job::Job;
use ax_model::new_job::NewJob;
use ax_model::store::{
    Also, Applied, Cursor, EnqueueRefusal, Enqueued, Flow, FlowFilter, FlowHead, FlowPage, FlowRefusal, Listed,
    NewFlow, Rerun, Swept, Touched, Upstream,
};
use ax_model::{EdgeKind, Event, JobId, Refusal, State, Timestamp};

use crate::memory_model::Model;
use crate::memory_read::listed;

/// An edge of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) kind: EdgeKind,
    pub(crate) settled: Option<bool>,
}

/// A job that has come to its end, or left it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turned {
    pub(crate) seq: i64,
    pub(crate) from: State,
    pub(crate) to: State,
}

impl Model {
    /// Carries every end and every new life on to those that wait, until nothing more changes.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Vec<Also> {
        let mut also = vec![];
        let mut flows = vec![];
        loop {
            while let Some(turned) = self.turned.pop_front() {
                if !turned.to.is_final() {
                    self.reopen_edges(turned.seq, now);
                } else if let Some(end) = self.ended(turned.seq) {
                    self.end_edges(turned.seq, end, now, &mut also);
                }
                if let Some(flow) = self.rows[&turned.seq].job.place.as_ref().map(|place| place.flow) {
                    let head = self.flows.get_mut(&flow).expect("a place is in a flow");
                    head.counts.moved(Some(turned.from), turned.to);
                    flows.push(flow);
                }
            }
            let Some(flow) = flows.pop() else { return also };
            self.look_at_end(flow, now, &mut also);
        }
    }

    fn children(&self, parent: i64) -> Vec<i64> {
        self.edges.range((parent, i64::MIN)..=(parent, i64::MAX)).map(|((_, child), _)| *child).collect()
    }

    fn parents(&self, child: i64) -> Vec<(i64, Drawn)> {
        self.edges.iter().filter(|((_, c), _)| *c == child).map(|((parent, _), edge)| (*parent, *edge)).collect()
    }

    pub(crate) fn has_parents(&self, child: i64) -> bool {
        !self.parents(child).is_empty()
    }

    fn verdict(&self, child: i64) -> Verdict {
        let mut sums = EdgeSums::default();
        self.parents(child).iter().for_each(|(_, edge)| sums.add(edge.kind, edge.settled));
        sums.verdict()
    }

    /// How a job has ended for those that wait for it: one that starts a flow ends as the flow does.
    pub(crate) fn ended(&self, seq: i64) -> Option<State> {
        let job = &self.rows[&seq].job;
        if job.life.state == State::Success
            && job.spec.task == FLOW_TASK
            && let Some((_, state)) = self.started_by(job)
        {
            return state.end();
        }
        job.life.state.is_final().then_some(job.life.state)
    }

    /// Where a job stands for those that wait for it.
    fn stands(&self, job: &Job) -> State {
        let flow = || (job.spec.task == FLOW_TASK).then(|| self.started_by(job)).flatten();
        match job.life.state {
            State::Success => flow().map_or(State::Success, |(_, state)| state.as_job()),
            state => state,
        }
    }

    /// The newest run of the flow that a job has started.
    pub(crate) fn started_by(&self, job: &Job) -> Option<(JobId, FlowState)> {
        let first = FlowTemplate::flow_id(job.spec.id, job.spec.created_at);
        let head = |id: JobId| self.flows.get(&id);
        let newest = std::iter::successors(head(first), |run| head(run.next?)).last()?;
        Some((newest.spec.id, newest.state()))
    }

    /// A flow goes on again, or has ended: those that wait for the job that started it learn it.
    fn flow_turned(&mut self, id: JobId, now: Timestamp, also: &mut Vec<Also>) {
        let Some(seq) = self.ids.get(&id).copied() else { return };
        let job = &self.rows[&seq].job;
        if job.spec.task == FLOW_TASK && job.life.state.is_final() {
            match self.ended(seq) {
                Some(end) => self.end_edges(seq, end, now, also),
                None => self.reopen_edges(seq, now),
            }
        }
    }

    fn end_edges(&mut self, parent: i64, state: State, now: Timestamp, also: &mut Vec<Also>) {
        for child in self.children(parent) {
            let edge = self.edges.get_mut(&(parent, child)).expect("just listed");
            if edge.settled.is_none() {
                edge.settled = edge.kind.settled(state);
                let kind = edge.kind;
                also.extend(self.judge(child, parent, state, kind, now));
            }
        }
    }

    pub(crate) fn sweep(&mut self, now: Timestamp) -> Swept {
        let late =
            |((parent, _), edge): &(&(i64, i64), &Drawn)| edge.settled.is_none() && self.ended(*parent).is_some();
        let late: Vec<i64> = self.edges.iter().filter(late).map(|((parent, _), _)| *parent).collect();
        let mut swept = Swept { edges: late.len(), also: vec![] };
        for parent in late {
            let end = self.ended(parent).expect("it has");
            self.end_edges(parent, end, now, &mut swept.also);
        }
        swept.also.extend(self.settle(now));
        swept
    }

    fn judge(&mut self, child: i64, parent: i64, state: State, kind: EdgeKind, now: Timestamp) -> Option<Also> {
        let from = &self.rows[&parent].job;
        let event = match self.verdict(child) {
            Verdict::Waits => return None,
            Verdict::Met => Event::Unblocked,
            Verdict::Impossible => Event::Impossible { reason: skip_reason(name_of(from), from.spec.id, state, kind) },
        };
        self.change(child, &event, now, 0).ok()?;
        let Event::Impossible { reason } = event else { return None };
        let spec = &self.rows[&child].job.spec;
        Some(Also::Skipped { job: Box::new(Touched::of(spec)), reason: reason.message })
    }

    fn reopen_edges(&mut self, parent: i64, now: Timestamp) {
        for child in self.children(parent) {
            let life = self.rows[&child].job.life;
            let edge = self.edges.get_mut(&(parent, child)).expect("just listed");
            if edge.settled.is_none() || life.attempt > 0 {
                continue;
            }
            edge.settled = None;
            if !life.blocked && self.verdict(child) == Verdict::Waits {
                // Refused where the job has ended otherwise than skipped.
                let _ = self.change(child, &Event::Blocked, now, 0);
            }
        }
    }

    /// What a retry of a job by a person must know of its edges.
    pub(crate) fn before_retry(&self, seq: i64) -> Result<bool, Refusal> {
        match self.verdict(seq) {
            Verdict::Met => Ok(false),
            Verdict::Waits => Ok(true),
            Verdict::Impossible => {
                let broken = |(_, edge): &&(i64, Drawn)| edge.settled == Some(false);
                let parents = self.parents(seq);
                let first = parents.iter().filter(broken).min_by_key(|(parent, edge)| (edge.kind, *parent));
                Err(Refusal::Upstream(self.rows[&first.expect("one is broken").0].job.spec.id))
            }
        }
    }

    /// A job that makes these and that is not at work any more, or was told to stop.
    pub(crate) fn maker_over(&self, jobs: &[NewJob]) -> Option<JobId> {
        let mut makers = jobs.iter().filter_map(NewJob::made_by);
        makers.find(|maker| !self.row(*maker).is_some_and(|row| row.job.life.is_at_work()))
    }

    /// Draws the edges of jobs that were just stored; `created` holds those of the batch that were, and their rows.
    pub(crate) fn draw(
        &mut self,
        jobs: &[NewJob],
        done: &mut [Enqueued],
        now: Timestamp,
    ) -> Result<(), EnqueueRefusal> {
        for (job, one) in jobs.iter().zip(&*done).filter(|(_, one)| one.created) {
            let Some((map, _)) = job.place.as_ref().and_then(|place| place.made_by) else { continue };
            let Some(map) = self.ids.get(&map).copied() else { continue };
            let open = |(_, edge): &(i64, Drawn)| edge.settled.is_none();
            let of_map = self.children(map).into_iter().map(|child| (child, self.edges[&(map, child)])).filter(open);
            for (child, edge) in of_map.collect::<Vec<_>>() {
                self.edges.entry((self.ids[&one.id], child)).or_insert(edge);
            }
        }
        for (index, job) in jobs.iter().enumerate() {
            if !done[index].created {
                continue;
            }
            let child = self.ids[&done[index].id];
            let mut decided: Option<(i64, Drawn)> = None;
            for edge in &job.edges {
                let of_batch = jobs.iter().position(|job| job.spec.id == edge.parent).map(|n| done[n].id);
                let parent = self.ids.get(&of_batch.unwrap_or(edge.parent)).copied();
                let Some(parent) = parent else {
                    return Err(EnqueueRefusal::UnknownParent { index, parent: edge.parent });
                };
                let ended = self.ended(parent);
                let settled = ended.and_then(|state| edge.kind.settled(state));
                let drawn = Drawn { kind: edge.kind, settled };
                self.edges.entry((parent, child)).or_insert(drawn);
                if settled.is_some() && decided.is_none_or(|(_, edge)| edge.settled != Some(false)) {
                    decided = Some((parent, drawn));
                }
            }
            if let Some((parent, edge)) = decided
                && let Some(end) = self.ended(parent)
            {
                done[index].also.extend(self.judge(child, parent, end, edge.kind, now));
            }
        }
        Ok(())
    }

    pub(crate) fn submit_flow(
        &mut self,
        flow: &NewFlow,
        jobs: Vec<NewJob>,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, EnqueueRefusal> {
        if self.flows.contains_key(&flow.id) {
            let of_flow = self.members(flow.id).into_iter().map(|seq| &self.rows[&seq].job);
            let own = of_flow.filter(|job| job.place.as_ref().is_some_and(|place| place.made_by.is_none()));
            let again = |job: &Job| Enqueued {
                id: job.spec.id,
                trace_id: job.spec.trace_id.clone(),
                created: false,
                also: vec![],
            };
            return Ok(own.map(again).collect());
        }
        if let Some(maker) = self.maker_over(&jobs) {
            return Err(EnqueueRefusal::MakerOver(maker));
        }
        let before = self.clone();
        self.put_flow(flow, 1, 1, None);
        let keys: Vec<bool> = jobs.iter().map(|job| job.spec.key.is_some()).collect();
        let done = self.enqueue(jobs, now).and_then(|done| match done.iter().position(|one| !one.created) {
            Some(index) if keys[index] => Err(EnqueueRefusal::KeyConflict { index, existing: done[index].id }),
            Some(index) => Err(EnqueueRefusal::IdConflict { index }),
            None => Ok(done),
        });
        if done.is_err() {
            *self = before;
        }
        done
    }

    fn put_flow(&mut self, flow: &NewFlow, attempt: u32, tries: u32, retry_of: Option<JobId>) {
        self.last_flow += 1;
        let head = FlowHead {
            seq: self.last_flow,
            spec: flow.clone(),
            attempt,
            tries,
            retry_of,
            next: None,
            cancel_asked: false,
            counts: FlowCounts::default(),
            finished_at: None,
        };
        self.flows.insert(flow.id, head);
    }

    fn members(&self, flow: JobId) -> Vec<i64> {
        let of_flow = |job: &Job| job.place.as_ref().is_some_and(|place| place.flow == flow);
        self.rows.iter().filter(|(_, row)| of_flow(&row.job)).map(|(seq, _)| *seq).collect()
    }

    fn look_at_end(&mut self, id: JobId, now: Timestamp, also: &mut Vec<Also>) {
        let Some(head) = self.flows.get_mut(&id) else { return };
        let state = head.state();
        let ended = state != FlowState::Running;
        if ended == head.finished_at.is_some() {
            return;
        }
        head.finished_at = ended.then_some(now);
        let again = state == FlowState::Dead && !head.cancel_asked && head.next.is_none();
        let next = (again && head.tries < head.spec.max_attempts).then(|| (head.spec.retry, head.tries + 1));
        let root = head.spec.root_id;
        if !ended {
            return self.flow_turned(root, now, also);
        }
        let next = next.and_then(|(retry, tries)| self.new_run(id, retry, tries, now));
        let (next, made) = next.map_or((None, vec![]), |(next, made)| (Some(next), made));
        also.push(Also::FlowEnded { id, state, next });
        also.extend(made);
        if next.is_none() {
            self.flow_turned(root, now, also);
        }
    }

    /// A run with all that its jobs are made of.
    fn run_of(&self, id: JobId) -> Run {
        let seqs = self.members(id);
        let edge = |(parent, edge): (i64, Drawn)| Edge { parent: self.rows[&parent].job.spec.id, kind: edge.kind };
        let old = |seq: i64| Old {
            job: self.rows[&seq].job.clone(),
            into: self.parents(seq).into_iter().map(edge).collect(),
            fills: self.rows[&seq].fills,
        };
        seqs.into_iter().map(old).collect()
    }

    fn new_run(&mut self, id: JobId, retry: FlowRetry, tries: u32, now: Timestamp) -> Option<(JobId, Vec<Also>)> {
        let head = self.flows[&id].clone();
        let old = match retry {
            FlowRetry::Failed => self.run_of(id),
            FlowRetry::All => {
                let before = |id: &JobId| self.flows[id].retry_of.filter(|id| self.flows.contains_key(id));
                as_one(std::iter::successors(Some(id), before).map(|id| self.run_of(id)).collect())
            }
        };
        let texts = |job: &Job| Ok::<_, Infallible>((job.spec.args.clone(), job.spec.kwargs.clone()));
        let Ok((flow, mut anew)) = next_run(&head, old, retry, now, texts);
        if anew.is_empty() {
            return None;
        }
        for job in &mut anew {
            let Some(key) = job.spec.key.clone().map(|key| (job.spec.task.clone(), key)) else { continue };
            if self.keys.get(&key).is_some_and(|holder| !self.rows[holder].job.life.state.is_final()) {
                (job.spec.key, job.digest) = (None, None);
            } else {
                self.keys.remove(&key);
            }
        }
        self.put_flow(&flow, head.attempt + 1, tries, Some(id));
        self.flows.get_mut(&id).expect("it runs again").next = Some(flow.id);
        let mut also: Vec<Also> = anew.iter().map(|job| Also::Enqueued(Box::new(Touched::of(&job.spec)))).collect();
        let done = self.enqueue_all(anew, now).expect("what was stored once can be stored again");
        also.extend(done.into_iter().flat_map(|one| one.also));
        Some((flow.id, also))
    }

    pub(crate) fn retry_flow(&mut self, id: JobId, retry: FlowRetry, now: Timestamp) -> Result<Rerun, FlowRefusal> {
        let head = self.flows.get(&id).ok_or(FlowRefusal::NotFound)?;
        if let Some(next) = head.next {
            return Err(FlowRefusal::Superseded(next));
        }
        match head.state() {
            FlowState::Running => return Err(FlowRefusal::Running),
            FlowState::Success if retry == FlowRetry::Failed => return Err(FlowRefusal::Ended(FlowState::Success)),
            _ => {}
        }
        let (state, root) = (head.state(), head.spec.root_id);
        let (next, mut also) = self.new_run(id, retry, 1, now).ok_or(FlowRefusal::Ended(state))?;
        self.flow_turned(root, now, &mut also);
        also.extend(self.settle(now));
        Ok(Rerun { head: self.flows[&next].clone(), also })
    }

    pub(crate) fn cancel_flow(&mut self, id: JobId, now: Timestamp) -> Result<Vec<Applied>, FlowRefusal> {
        let head = self.flows.get_mut(&id).ok_or(FlowRefusal::NotFound)?;
        if head.state() != FlowState::Running {
            return Err(FlowRefusal::Ended(head.state()));
        }
        head.cancel_asked = true;
        let mut done: Vec<Applied> = vec![];
        for seq in self.members(id) {
            if let Ok(change) = self.change(seq, &Event::CancelAsked, now, 0) {
                done.push(Applied { id: self.rows[&seq].job.spec.id, life: change.life, also: vec![] });
            }
        }
        let also = self.settle(now);
        if let Some(last) = done.last_mut() {
            last.also = also;
        }
        Ok(done)
    }

    pub(crate) fn flow(&self, id: JobId) -> Option<Flow> {
        let head = self.flows.get(&id)?.clone();
        let mut flow = Flow { head, jobs: vec![], edges: vec![] };
        for seq in self.members(id) {
            let into =
                self.parents(seq).into_iter().map(|(parent, edge)| (flow.jobs.len(), self.upstream_of(parent, edge)));
            flow.edges.extend(into);
            flow.jobs.push(listed(&self.rows[&seq].job));
        }
        Some(flow)
    }

    pub(crate) fn flow_wrong(&self, id: JobId, limit: usize) -> Vec<Listed> {
        let jobs = self.members(id).into_iter().map(|seq| &self.rows[&seq].job);
        let wrong = jobs.filter(|job| matches!(job.life.state, State::Dead | State::Failed | State::Held));
        let (held, others): (Vec<&Job>, Vec<&Job>) = wrong.partition(|job| job.life.state == State::Held);
        held.into_iter().chain(others).take(limit).map(listed).collect()
    }

    pub(crate) fn node_names(&self, id: JobId) -> Vec<String> {
        let places = self.members(id).into_iter().filter_map(|seq| self.rows[&seq].job.place.as_ref());
        places.filter(|place| place.made_by.is_none()).map(|place| place.node.clone()).collect()
    }

    fn upstream_of(&self, parent: i64, edge: Drawn) -> Upstream {
        let job = &self.rows[&parent].job;
        Upstream {
            edge: Edge { parent: job.spec.id, kind: edge.kind },
            name: name_of(job).to_owned(),
            state: self.stands(job),
            settled: edge.settled,
        }
    }

    pub(crate) fn flow_page(&self, filter: &FlowFilter, after: Option<Cursor>, limit: usize) -> FlowPage {
        let before = after.map_or(i64::MAX, |cursor| cursor.0);
        let fits = |head: &&FlowHead| {
            head.seq < before
                && (head.counts.jobs > 0 || filter.ids.is_some())
                && (filter.states.is_empty() || filter.states.contains(&head.state()))
                && filter.name.as_ref().is_none_or(|name| *name == head.spec.name)
                && filter.ids.is_none_or(|(first, last)| (first..=last).contains(&head.spec.id))
        };
        let mut flows: Vec<FlowHead> = self.flows.values().filter(fits).cloned().collect();
        flows.sort_by_key(|head| std::cmp::Reverse(head.seq));
        let more = flows.len() > limit;
        flows.truncate(limit);
        let next = flows.last().filter(|_| more).map(|head| Cursor(head.seq));
        FlowPage { flows, next }
    }

    pub(crate) fn upstream(&self, id: JobId, limit: usize) -> Vec<Upstream> {
        let Some(seq) = self.ids.get(&id) else { return vec![] };
        let mut edges = self.parents(*seq);
        edges.sort_by_key(|(parent, edge)| (edge.settled.is_some(), *parent));
        edges.into_iter().take(limit).map(|(parent, edge)| self.upstream_of(parent, edge)).collect()
    }

    pub(crate) fn made_by(&self, job: JobId, map: JobId) -> Vec<JobId> {
        let Some(seq) = self.ids.get(&job) else { return vec![] };
        let item = |(parent, _): (i64, Drawn)| {
            let job = &self.rows[&parent].job;
            let (of, index) = job.place.as_ref()?.made_by?;
            (of == map).then_some((index, job.spec.id))
        };
        let mut items: Vec<(u32, JobId)> = self.parents(*seq).into_iter().filter_map(item).collect();
        items.sort_unstable();
        items.into_iter().map(|(_, id)| id).collect()
    }

    /// Another job waits for it, so it must not be deleted.
    pub(crate) fn is_waited_for(&self, seq: i64) -> bool {
        self.children(seq).iter().any(|child| !self.rows[child].job.life.state.is_final())
    }

    pub(crate) fn forget_ties(&mut self, job: &Job) {
        self.edges.retain(|(parent, child), _| *parent != job.seq && *child != job.seq);
        let Some(place) = &job.place else { return };
        let Some(head) = self.flows.get_mut(&place.flow) else { return };
        head.counts.jobs -= 1;
        let runs = self.runs_beside(place.flow);
        if runs.iter().all(|id| self.flows[id].counts.jobs == 0) {
            runs.iter().for_each(|id| drop(self.flows.remove(id)));
        }
    }

    /// A flow with its earlier and later runs.
    fn runs_beside(&self, id: JobId) -> Vec<JobId> {
        let along = |by: fn(&FlowHead) -> Option<JobId>| {
            let from = self.flows.get(&id);
            std::iter::successors(from, move |head| self.flows.get(&by(head)?)).map(|head| head.spec.id)
        };
        along(|head| head.retry_of).chain(along(|head| head.next).skip(1)).collect()
    }

    pub(crate) fn check_flows(&self) -> Vec<String> {
        let mut wrong = vec![];
        for ((parent, child), edge) in &self.edges {
            let (Some(from), Some(to)) = (self.rows.get(parent), self.rows.get(child)) else {
                wrong.push(format!("an edge from row {parent} to row {child} has lost an end"));
                continue;
            };
            if edge.settled.is_none() && self.ended(*parent).is_some() {
                wrong.push(format!("the edge from {} to {} is open", from.job.spec.id, to.job.spec.id));
            }
        }
        for (seq, row) in &self.rows {
            if row.job.life.blocked && self.verdict(*seq) != Verdict::Waits {
                wrong.push(format!("job {} waits for nothing", row.job.spec.id));
            }
        }
        for head in self.flows.values() {
            let mut counts = FlowCounts::default();
            self.members(head.spec.id).iter().for_each(|seq| counts.moved(None, self.rows[seq].job.life.state));
            // Deleted jobs are still counted by how they ended.
            let (is, kept) = (counts, head.counts);
            if is.jobs != kept.jobs || is.open != kept.open || is.dead > kept.dead || is.cancelled > kept.cancelled {
                wrong.push(format!("flow {} counts {:?}, its jobs are {counts:?}", head.spec.id, head.counts));
            }
            if (counts.open == 0) != head.finished_at.is_some() {
                wrong.push(format!("flow {} and the time of its end do not go together", head.spec.id));
            }
        }
        wrong
    }
}

fn name_of(job: &Job) -> &str {
    job.place.as_ref().map_or(&job.spec.task, |place| &place.node)
}

/// What `Model::settle` has still to carry on.
pub(crate) type Turns = VecDeque<Turned>;
