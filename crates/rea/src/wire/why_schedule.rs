//! Why a schedule fires or does not, as users read it: gate by gate, with what became of its last ticks.

use ax::WhySchedule;
use ax::model::schedule::Overlap;
use ax::{State, Timestamp};

use crate::wire::schedule::TickView;
use crate::wire::why::{GateView, WhyView, open, server, shell_word, shut, span};

impl<'a> WhyView<'a> {
    /// Why a schedule fires or does not. `not_ready`: why the server takes no jobs.
    #[must_use]
    pub fn of_schedule(why: &'a WhySchedule, not_ready: Option<&str>) -> WhyView<'a> {
        let gates = vec![rule(why), pause(why), task(why), server(&why.node, not_ready), overlap(why), time(why)];
        let blocked = gates.iter().find(|gate| !gate.open);
        WhyView {
            schedule: Some(why.schedule.spec.name.clone()),
            queue: why.schedule.spec.template.queue.clone(),
            summary: blocked
                .map_or_else(|| "nothing: it is due and fires at any moment".to_owned(), |gate| gate.text.clone()),
            blocked_by: blocked.map(|gate| gate.gate),
            gates,
            ticks: Some(why.ticks.iter().map(TickView::from).collect()),
            ..WhyView::default()
        }
    }
}

fn rule(why: &WhySchedule) -> GateView {
    let spec = &why.schedule.spec;
    match (why.schedule.grid(), spec.timing.reading()) {
        (Ok(_), reading) => open("rule", reading.unwrap_or_default()),
        (Err(trouble), _) => shut("rule", format!("a rule that can be read: {trouble}"))
            .lift(format!("change it: rea schedule edit {} --cron RULE", shell_word(&spec.name))),
    }
}

fn pause(why: &WhySchedule) -> GateView {
    let name = shell_word(&why.schedule.spec.name);
    let Some(pause) = &why.schedule.pause else { return open("pause", "it is not paused") };
    let since = span(pause.since, why.now);
    let gate = match (&pause.reason, pause.withdrawn) {
        (_, true) => shut("pause", format!("its declaration, which is gone for {since}"))
            .lift(format!("declare it again, or: rea schedule resume {name} | rea schedule remove {name}")),
        (Some(reason), _) => shut("pause", format!("the schedule to be resumed; it is paused for {since}: {reason}"))
            .lift(format!("rea schedule resume {name}")),
        (None, _) => shut("pause", format!("the schedule to be resumed; it is paused for {since}"))
            .lift(format!("rea schedule resume {name}")),
    };
    gate.since(pause.since)
}

/// Of a task that no worker offers now, jobs are made and wait; of one that none has ever offered, there are none.
fn task(why: &WhySchedule) -> GateView {
    let task = &why.schedule.spec.template.task;
    let help = "start the server with the file that defines it";
    match (why.known, why.node.offers.contains(task)) {
        (true, true) => open("task", format!("task {task} is offered")),
        (true, false) => {
            open("task", format!("task {task} is known; no worker offers it now, so its jobs wait")).lift(help)
        }
        (false, _) => {
            shut("task", format!("its task: no worker has ever offered {task}, so its ticks are skipped")).lift(help)
        }
    }
}

fn overlap(why: &WhySchedule) -> GateView {
    let live = &why.live;
    let Some((id, state)) = live.last() else { return open("overlap", "none of its jobs waits or runs") };
    let n = live.len();
    let many = if n == 1 { String::new() } else { format!(" (and {} more)", n - 1) };
    match why.schedule.spec.overlap {
        Overlap::Skip => {
            shut("overlap", format!("the end of job {id}, which is {state}{many}: until then its ticks are skipped"))
                .lift(match state {
                    State::Held => format!("decide: rea job {id}"),
                    _ => format!("see what it waits for: rea why {id}"),
                })
        }
        Overlap::Queue => open("overlap", format!("job {id} is {state}{many}; the next waits for its end")),
        Overlap::Allow => open("overlap", format!("job {id} is {state}{many}; the next runs beside")),
        Overlap::CancelOld => open("overlap", format!("job {id} is {state}{many}; the next tick cancels it")),
    }
}

fn time(why: &WhySchedule) -> GateView {
    let next: Option<Timestamp> = why.schedule.next;
    match next {
        Some(next) if next > why.now => shut("time", format!("its next tick, in {}", span(why.now, next))).at(next),
        Some(next) => open("time", format!("a tick is due for {}", span(next, why.now))).at(next),
        None => shut("time", "a next tick: there is none"),
    }
}
