//! Edges between jobs, and the flows that they make: what an ended job means for those that wait for it.

use crate::ids::JobId;
use crate::job::{ErrorInfo, State, coded};

/// When an edge from a parent to a child holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// The parent ended `success`. Of several such edges all must hold.
    Success,
    /// The parent ended `dead`. Of several such edges one is enough.
    Failure,
    /// The parent ended, however. Of several such edges all must hold.
    Finished,
}

coded!(EdgeKind { Success = 0 "success", Failure = 1 "failure", Finished = 2 "finished" });

/// What a new job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The job that must end.
    pub parent: JobId,
    /// How.
    pub kind: EdgeKind,
}

impl EdgeKind {
    /// What the parent's state makes of the edge: it holds, it can never hold, or (`None`) it is open.
    #[must_use]
    pub fn settled(self, parent: State) -> Option<bool> {
        let holds = match self {
            EdgeKind::Success => parent == State::Success,
            EdgeKind::Failure => parent == State::Dead,
            EdgeKind::Finished => true,
        };
        parent.is_final().then_some(holds)
    }
}

/// What the edges of one child have come to, by kind: whether there is one that is open, that holds, that can't hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeSums {
    /// Indexed by the kind's code.
    pub open: [bool; 3],
    /// Indexed by the kind's code.
    pub holds: [bool; 3],
    /// Indexed by the kind's code.
    pub broken: [bool; 3],
}

/// What a child's edges say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not decided yet.
    Waits,
    /// It may run.
    Met,
    /// It can never run.
    Impossible,
}

impl EdgeSums {
    /// Takes in one edge.
    pub fn add(&mut self, kind: EdgeKind, settled: Option<bool>) {
        let sums = match settled {
            None => &mut self.open,
            Some(true) => &mut self.holds,
            Some(false) => &mut self.broken,
        };
        sums[kind as usize] = true;
    }

    /// All success edges, all finished edges, and any of the failure edges.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        const FAILURE: usize = EdgeKind::Failure as usize;
        let all = [EdgeKind::Success as usize, EdgeKind::Finished as usize];
        let (open, holds, broken) = (self.open[FAILURE], self.holds[FAILURE], self.broken[FAILURE]);
        if all.iter().any(|kind| self.broken[*kind]) || (broken && !open && !holds) {
            Verdict::Impossible
        } else if all.iter().any(|kind| self.open[*kind]) || (open && !holds) {
            Verdict::Waits
        } else {
            Verdict::Met
        }
    }
}

/// Why a job is skipped: the parent that decided it, by the name that people know it by.
#[must_use]
pub fn skip_reason(parent_name: &str, parent: JobId, state: State, kind: EdgeKind) -> ErrorInfo {
    let wanted = match kind {
        EdgeKind::Success => "",
        EdgeKind::Failure => "; this job runs only after a failure",
        EdgeKind::Finished => "; this job runs after its end",
    };
    ErrorInfo {
        cause: State::Skipped.as_str().to_owned(),
        kind: "upstream".to_owned(),
        message: format!("upstream {parent_name} is {state} ({parent}){wanted}"),
        traceback: None,
    }
}

/// A cycle among `nodes` nodes with (parent, child) edges, as the path from a node back to itself; `None` = there is none.
/// Takes time in proportion to nodes and edges.
#[must_use]
pub fn cycle(nodes: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
    // Kahn 1962: nodes without open parents are taken away until there are none; what is left holds a cycle.
    let mut parents = vec![0usize; nodes];
    let mut children = vec![vec![]; nodes];
    for &(parent, child) in edges {
        parents[child] += 1;
        children[parent].push(child);
    }
    let mut free: Vec<usize> = (0..nodes).filter(|node| parents[*node] == 0).collect();
    while let Some(node) = free.pop() {
        for &child in &children[node] {
            parents[child] -= 1;
            if parents[child] == 0 {
                free.push(child);
            }
        }
    }
    let start = (0..nodes).find(|node| parents[*node] > 0)?;
    // Every node that is left has a parent that is left: walking up must come round.
    let mut parent_of = vec![None; nodes];
    for &(parent, child) in edges {
        if parents[parent] > 0 && parents[child] > 0 {
            parent_of[child] = Some(parent);
        }
    }
    let mut step_of = vec![None; nodes];
    let mut path = vec![];
    let mut node = start;
    while step_of[node].is_none() {
        step_of[node] = Some(path.len());
        path.push(node);
        node = parent_of[node]?;
    }
    let mut round = path.split_off(step_of[node]?);
    round.push(node);
    round.reverse();
    Some(round)
}

/// Which jobs a new run of a flow makes anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowRetry {
    /// Those that failed or were cancelled, and all below them.
    #[default]
    Failed,
    /// All.
    All,
}

coded!(FlowRetry { Failed = 0 "failed", All = 1 "all" });

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowState {
    /// Some of its jobs have not ended.
    Running,
    /// All have ended and none is dead or cancelled.
    Success,
    /// All have ended and one is dead, also if a branch for that case has run.
    Dead,
    /// All have ended and one was cancelled, but none is dead; or the flow itself was cancelled.
    Cancelled,
}

impl FlowState {
    /// The state of a job that stands where the flow does.
    #[must_use]
    pub fn as_job(self) -> State {
        match self {
            FlowState::Running => State::Running,
            FlowState::Success => State::Success,
            FlowState::Dead => State::Dead,
            FlowState::Cancelled => State::Cancelled,
        }
    }

    /// The end of such a job; `None` = it has not ended.
    #[must_use]
    pub fn end(self) -> Option<State> {
        Some(self.as_job()).filter(|state| state.is_final())
    }
}

coded!(FlowState { Running = 0 "running", Success = 1 "success", Dead = 2 "dead", Cancelled = 3 "cancelled" });

/// How many jobs of a flow there are, by what matters to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// In all.
    pub jobs: u64,
    /// Not ended.
    pub open: u64,
    /// Ended `dead`.
    pub dead: u64,
    /// Ended `cancelled`.
    pub cancelled: u64,
}

impl FlowCounts {
    /// A job went from one state to another; `None` = it was not there before.
    pub fn moved(&mut self, from: Option<State>, to: State) {
        if let Some(from) = from {
            self.count(from, -1);
        } else {
            self.jobs += 1;
        }
        self.count(to, 1);
    }

    fn count(&mut self, state: State, by: i64) {
        let sum = match state {
            State::Dead => &mut self.dead,
            State::Cancelled => &mut self.cancelled,
            state if state.is_final() => return,
            _ => &mut self.open,
        };
        *sum = sum.saturating_add_signed(by);
    }

    /// Where the flow stands. `cancel_asked` = it was cancelled as a whole.
    #[must_use]
    pub fn state(&self, cancel_asked: bool) -> FlowState {
        match self {
            FlowCounts { open: 1.., .. } => FlowState::Running,
            FlowCounts { cancelled: 1.., .. } if cancel_asked => FlowState::Cancelled,
            FlowCounts { dead: 1.., .. } => FlowState::Dead,
            FlowCounts { cancelled: 1.., .. } => FlowState::Cancelled,
            _ => FlowState::Success,
        }
    }
}

/// A job of a flow, as far as a new run asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it stands.
    pub state: State,
    /// The member (by its place) that made it out of a list.
    pub made_by: Option<usize>,
}

/// Which members a new run makes anew, given the (parent, child) edges between them. What a map node made is not made
/// anew with it: the new map node makes it.
#[must_use]
pub fn rerun(members: &[Member], edges: &[(usize, usize)], retry: FlowRetry) -> Vec<bool> {
    let mut again = vec![retry == FlowRetry::All; members.len()];
    if retry == FlowRetry::Failed {
        let mut children = vec![vec![]; members.len()];
        for &(parent, child) in edges {
            children[parent].push(child);
        }
        let failed = |node: &usize| matches!(members[*node].state, State::Dead | State::Cancelled);
        let mut todo: Vec<usize> = (0..members.len()).filter(failed).collect();
        while let Some(node) = todo.pop() {
            if !std::mem::replace(&mut again[node], true) {
                todo.extend(&children[node]);
            }
        }
    }
    let by_map: Vec<bool> = members.iter().map(|member| member.made_by.is_some_and(|map| again[map])).collect();
    again.iter().zip(by_map).map(|(again, by_map)| *again && !by_map).collect()
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
