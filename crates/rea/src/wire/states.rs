//! States as they are asked for, in a query and on the command line: words with commas between them.

use ax::model::FlowState;
use ax::model::State;

use crate::error::clip;

/// States of jobs that are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStates {
    /// Those that may start now: no stored state.
    pub ready: bool,
    /// The stored ones.
    pub states: Vec<State>,
}

/// States of jobs, or `ready`, which stands alone.
///
/// # Errors
/// What is wrong with which word.
pub fn of_jobs(text: &str) -> Result<JobStates, String> {
    let mut asked = JobStates::default();
    for word in text.split(',') {
        match State::from_word(word) {
            Some(state) => asked.states.push(state),
            None if word == "ready" => asked.ready = true,
            None => {
                let known: Vec<&str> = State::ALL.iter().map(|s| s.as_str()).collect();
                return Err(format!("\"{}\" is no state; one of ready, {}", clip(word), known.join(", ")));
            }
        }
    }
    if asked.ready && !asked.states.is_empty() {
        return Err("\"ready\" stands alone: it is not stored, but worked out from the time".to_owned());
    }
    Ok(asked)
}

/// States of flows.
///
/// # Errors
/// Which word is none.
pub fn of_flows(text: &str) -> Result<Vec<FlowState>, String> {
    let state = |word: &str| {
        FlowState::from_word(word).ok_or_else(|| {
            let known: Vec<&str> = FlowState::ALL.iter().map(|state| state.as_str()).collect();
            format!("\"{}\" is no state of a flow; one of {}", clip(word), known.join(", "))
        })
    };
    text.split(',').map(state).collect()
}
