//! The wrapper that fails does fail as it is told, and a repeat after a lost reply has one effect.

use std::sync::Arc;
use std::time::Duration;

use ax_conformance::events::succeeded;
use ax_conformance::faulty_store::{Call, Fault, FaultyStore, Sleep};
use ax_conformance::harness::START;
use ax_conformance::waiting::block_on;
use ax_conformance::{HandClock, MemoryStore};
use ax_model::limits::Limits;
use ax_model::priority::Ageing;
use ax_model::store::{Act, ClaimRequest, EnqueueRefusal, Enqueued, Store, StoreError, StoreErrorKind, Target};
use ax_model::{Chance, Clock, JobRequest, NewJob, NodeId, Refusal, State, TaskSpec};

/// Passes the time on the hand clock.
fn opened(script: &[(Call, Fault)]) -> (Arc<HandClock>, FaultyStore) {
    let clock = Arc::new(HandClock::new(START));
    let memory = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, Ageing::default());
    let sleeper = Arc::clone(&clock);
    let sleep: Sleep = Arc::new(move |time: Duration| {
        sleeper.advance(u64::try_from(time.as_millis()).unwrap());
        Box::pin(std::future::ready(()))
    });
    (clock, FaultyStore::scripted(Arc::new(memory), script, sleep))
}

fn job() -> NewJob {
    let request = JobRequest { key: Some("k".to_owned()), ..JobRequest::new("faulty:f", "[]") };
    request.resolve(&TaskSpec::default(), &Limits::default(), START, &mut Chance::new(3)).unwrap()
}

fn enqueue(store: &dyn Store) -> Result<Result<Vec<Enqueued>, EnqueueRefusal>, StoreErrorKind> {
    block_on(store.enqueue(vec![job()])).map_err(|e: StoreError| e.kind)
}

#[test]
fn a_fault_before_the_commit_leaves_nothing_and_a_lost_reply_leaves_everything() {
    let script = [(Call::Enqueue, Fault::Before(StoreErrorKind::Full)), (Call::Enqueue, Fault::LoseReply)];
    let (_, store) = opened(&script);
    let id = job().spec.id;
    assert_eq!(enqueue(&store), Err(StoreErrorKind::Full));
    assert_eq!(block_on(store.get(id)), Ok(None));
    assert_eq!(enqueue(&store), Err(StoreErrorKind::Io));
    assert!(block_on(store.get(id)).unwrap().is_some());
    // The repeat is answered with the job that is there.
    let again = enqueue(&store).unwrap().unwrap();
    assert_eq!((again[0].id, again[0].created), (id, false));
}

/// F23: the reply of a finish is lost; its repeat is refused, and the job has ended once.
#[test]
fn f23_a_finish_whose_reply_was_lost_has_one_effect() {
    let (_, store) = opened(&[(Call::Apply, Fault::LoseReply)]);
    enqueue(&store).unwrap().unwrap();
    let offers = Arc::from(["faulty:f".to_owned()]);
    let ask = ClaimRequest { node: NodeId(1), offers, limit: 1, park: false, seed: 1 };
    let attempt = block_on(store.claim(ask)).unwrap()[0].attempt;
    let act = || Act { target: Target::Attempt(attempt), event: succeeded(attempt.fence, START), chance: 0 };
    assert_eq!(block_on(store.apply(vec![act()])).unwrap_err().kind, StoreErrorKind::Io);
    assert_eq!(block_on(store.apply(vec![act()])).unwrap(), [Err(Refusal::Lost)]);
    let counts = block_on(store.counts()).unwrap();
    assert_eq!((counts.by_state[State::Success as usize], counts.totals.succeeded), (1, 1));
}

#[test]
fn a_delay_lets_time_pass_before_the_call() {
    let (clock, store) = opened(&[(Call::Enqueue, Fault::Delay(Duration::from_millis(70)))]);
    enqueue(&store).unwrap().unwrap();
    assert_eq!(clock.now(), START.plus_ms(70));
}

#[test]
fn seeded_faults_are_the_same_for_the_same_seed_and_some_of_each_kind() {
    let run = |seed| {
        let (clock, _) = opened(&[]);
        let memory = Arc::new(MemoryStore::new(clock, Ageing::default()));
        let sleep: Sleep = Arc::new(|_| Box::pin(std::future::ready(())));
        let store = FaultyStore::seeded(memory, seed, 500, sleep);
        (0..100).map(|_| block_on(store.counts()).map(|_| ()).map_err(|e| e.kind)).collect::<Vec<_>>()
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    for kind in [StoreErrorKind::Busy, StoreErrorKind::Io, StoreErrorKind::Full] {
        assert!(first.contains(&Err(kind)), "{kind:?}");
    }
}
