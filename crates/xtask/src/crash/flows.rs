//! What is left of flows after a crash run.

use std::collections::HashMap;

use anyhow::{Context, Result};
use ax::model::flow::{EdgeSums, Verdict};
use ax::{Client, EdgeKind, FlowFilter, FlowState, State};

use super::witness::{self, Line};

/// Flows asked for at a time.
const PAGE: usize = 200;

/// Every flow has ended, once; what was skipped could never run, and what ran after a success began after it.
pub(super) async fn faults(client: &Client, lines: &[Line]) -> Result<Vec<String>> {
    let mut began: HashMap<&str, usize> = HashMap::new();
    let mut returned: HashMap<&str, usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        match line.word {
            witness::Word::Start => drop(began.entry(&line.job).or_insert(at)),
            witness::Word::End => drop(returned.insert(&line.job, at)),
            witness::Word::Helper => {}
        }
    }
    let (mut wrong, mut after, mut next_of) = (vec![], None, HashMap::new());
    loop {
        let page = client.flows(FlowFilter::default(), after, PAGE).await?;
        for head in page.flows {
            let id = head.spec.id;
            if let Some(before) = head.retry_of.and_then(|before| next_of.insert(before, id)) {
                wrong.push(format!("flows {id} and {before} are both the next run of one"));
            }
            let flow = client.flow(id).await?.with_context(|| format!("flow {id} is listed but not there"))?;
            let held = flow.jobs.iter().any(|listed| listed.job.life.state == State::Held);
            if flow.head.state() == FlowState::Running && !held {
                wrong.push(format!("flow {id} runs although everything had ended"));
            }
            for (place, listed) in flow.jobs.iter().enumerate() {
                let job = listed.job.spec.id;
                let edges = || flow.edges.iter().filter(|(child, _)| *child == place).map(|(_, parent)| parent);
                let mut sums = EdgeSums::default();
                edges().for_each(|parent| sums.add(parent.edge.kind, parent.settled));
                if listed.job.life.state == State::Skipped && sums.verdict() != Verdict::Impossible {
                    wrong.push(format!("job {job} was skipped although it could run"));
                }
                let name = job.to_string();
                for parent in edges().filter(|up| up.edge.kind == EdgeKind::Success && up.settled == Some(true)) {
                    let end = returned.get(parent.edge.parent.to_string().as_str()).copied();
                    if began.get(name.as_str()).is_some_and(|begin| end.is_some_and(|end| *begin < end)) {
                        wrong.push(format!("job {job} began before {} had succeeded", parent.edge.parent));
                    }
                }
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(wrong);
        }
    }
}
