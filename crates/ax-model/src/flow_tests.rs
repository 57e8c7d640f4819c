//! Edges and flows as tables.

use super::*;

const FINAL: [State; 4] = [State::Success, State::Dead, State::Cancelled, State::Skipped];

#[test]
fn an_edge_is_settled_by_a_final_state_and_by_nothing_else() {
    for &kind in EdgeKind::ALL {
        for &state in State::ALL {
            let holds = match (kind, state) {
                (_, state) if !FINAL.contains(&state) => None,
                (EdgeKind::Success, State::Success) | (EdgeKind::Failure, State::Dead) | (EdgeKind::Finished, _) => {
                    Some(true)
                }
                _ => Some(false),
            };
            assert_eq!(kind.settled(state), holds, "{kind} {state}");
        }
    }
}

#[test]
fn all_success_edges_all_finished_edges_and_any_failure_edge() {
    use EdgeKind::{Failure, Finished, Success};
    let verdict = |edges: &[(EdgeKind, Option<bool>)]| {
        let mut sums = EdgeSums::default();
        edges.iter().for_each(|(kind, settled)| sums.add(*kind, *settled));
        sums.verdict()
    };
    let (open, yes, no) = (None, Some(true), Some(false));
    for (edges, expected) in [
        (vec![], Verdict::Met),
        (vec![(Success, open)], Verdict::Waits),
        (vec![(Success, yes), (Success, open)], Verdict::Waits),
        (vec![(Success, yes), (Success, yes)], Verdict::Met),
        (vec![(Success, no), (Success, open)], Verdict::Impossible),
        (vec![(Failure, open)], Verdict::Waits),
        (vec![(Failure, no), (Failure, open)], Verdict::Waits),
        (vec![(Failure, no), (Failure, yes), (Failure, open)], Verdict::Met),
        (vec![(Failure, no), (Failure, no)], Verdict::Impossible),
        (vec![(Failure, yes), (Success, open)], Verdict::Waits),
        (vec![(Failure, yes), (Success, no)], Verdict::Impossible),
        (vec![(Failure, no), (Success, open)], Verdict::Impossible),
        (vec![(Finished, yes), (Finished, open)], Verdict::Waits),
        (vec![(Finished, yes), (Failure, yes), (Success, yes)], Verdict::Met),
    ] {
        assert_eq!(verdict(&edges), expected, "{edges:?}");
    }
}

#[test]
fn a_cycle_is_told_as_its_path() {
    assert_eq!(cycle(3, &[(0, 1), (1, 2), (0, 2)]), None);
    assert_eq!(cycle(1, &[(0, 0)]), Some(vec![0, 0]));
    let path = cycle(5, &[(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]).unwrap();
    assert_eq!((path.len(), path.first()), (4, path.last()));
    for step in path.windows(2) {
        assert!([(1, 2), (2, 3), (3, 1)].contains(&(step[0], step[1])), "{path:?}");
    }
}

/// C036: ten thousand nodes are looked through in far less than a second.
#[test]
fn c036_large_graphs_take_time_in_proportion_to_their_size() {
    let n = 10_000;
    let mut edges: Vec<(usize, usize)> = (1..n).map(|node| (node - 1, node)).collect();
    edges.extend((2..n).map(|node| (node / 2, node)));
    assert_eq!(cycle(n, &edges), None);
    edges.push((n - 1, 0));
    assert!(cycle(n, &edges).is_some_and(|path| path.first() == path.last() && path.len() > 2));
}

#[test]
fn a_flow_is_what_its_jobs_are() {
    let state = |states: &[State], asked: bool| {
        let mut counts = FlowCounts::default();
        states.iter().for_each(|state| counts.moved(None, *state));
        counts.state(asked)
    };
    use State::{Cancelled, Dead, Held, Pending, Skipped, Success};
    for (states, asked, expected) in [
        (vec![Success, Pending], false, FlowState::Running),
        (vec![Dead, Held], false, FlowState::Running),
        (vec![Success, Skipped], false, FlowState::Success),
        (vec![Success, Dead, Skipped], false, FlowState::Dead),
        (vec![Cancelled, Skipped], false, FlowState::Cancelled),
        (vec![Cancelled, Dead], false, FlowState::Dead),
        (vec![Cancelled, Dead], true, FlowState::Cancelled),
        (vec![Success, Success], true, FlowState::Success),
    ] {
        assert_eq!(state(&states, asked), expected, "{states:?}");
    }
    let mut counts = FlowCounts::default();
    counts.moved(None, Pending);
    counts.moved(Some(Pending), Dead);
    assert_eq!(counts, FlowCounts { jobs: 1, open: 0, dead: 1, cancelled: 0 });
    counts.moved(Some(Dead), Pending);
    assert_eq!(counts, FlowCounts { jobs: 1, open: 1, dead: 0, cancelled: 0 });
}

#[test]
fn a_new_run_takes_what_failed_and_all_below_it() {
    // fetch → clean → report, clean → alert (on failure), fetch → index
    let member = |state| Member { state, made_by: None };
    let members = [State::Success, State::Dead, State::Skipped, State::Success, State::Success].map(member);
    let edges = [(0, 1), (1, 2), (1, 3), (0, 4)];
    assert_eq!(rerun(&members, &edges, FlowRetry::Failed), [false, true, true, true, false]);
    assert_eq!(rerun(&members, &edges, FlowRetry::All), [true; 5]);
}

#[test]
fn what_a_map_node_made_is_made_by_the_new_map_node() {
    let item = |state| Member { state, made_by: Some(0) };
    let map = |state| Member { state, made_by: None };
    // map, two items, join
    let edges = [(0, 3), (1, 3), (2, 3)];
    let partly = [map(State::Success), item(State::Success), item(State::Dead), map(State::Skipped)];
    assert_eq!(rerun(&partly, &edges, FlowRetry::Failed), [false, false, true, true]);
    assert_eq!(rerun(&partly, &edges, FlowRetry::All), [true, false, false, true]);
    let dead = [map(State::Dead), item(State::Success), item(State::Cancelled), map(State::Skipped)];
    assert_eq!(rerun(&dead, &edges, FlowRetry::Failed), [true, false, false, true]);
}
