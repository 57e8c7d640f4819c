//! A job that follows another: stored with it, in its chain, and told apart in the answers.

mod world;

use ax::{EnqueueError, Job, JobRequest};
use world::{On, World, job};

on_every_store! {
    what_follows_is_stored_with_its_job_and_not_answered;
    a_fault_is_told_in_terms_of_the_requests;
}

/// `task` with a `polite` job that follows it.
fn followed(task: &str) -> JobRequest {
    let follower = JobRequest { queue: Some("after".to_owned()), ..job("polite") };
    JobRequest { followed_by: Some(Box::new(follower)), ..job(task) }
}

async fn followers(w: &World) -> Vec<Job> {
    let filter = ax::Filter { queue: Some("after".to_owned()), ..ax::Filter::default() };
    w.store.list(filter, None, 100).await.unwrap().jobs.into_iter().map(|listed| listed.job).collect()
}

async fn what_follows_is_stored_with_its_job_and_not_answered(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let far = |request: JobRequest| JobRequest { delay_ms: Some(3_600_000), ..request };
    let id = client.new_id();
    let requests = vec![
        far(job("ok")),
        far(followed("ok")),
        far(JobRequest { id: Some(id), key: Some("k".to_owned()), ..followed("ok") }),
    ];
    let made = client.enqueue(requests).await.unwrap();
    assert_eq!(made.iter().map(|one| one.created).collect::<Vec<_>>(), [true; 3]);
    assert_eq!(made[2].id, id);
    let mut roots: Vec<_> = followers(&w).await.iter().map(|job| job.spec.root_id).collect();
    roots.sort_unstable();
    let mut leaders = vec![made[1].id, id];
    leaders.sort_unstable();
    assert_eq!(roots, leaders);
    // The key's job is there: so is what follows it.
    let again = client.enqueue_one(far(JobRequest { key: Some("k".to_owned()), ..followed("ok") })).await.unwrap();
    assert_eq!((again.id, again.created), (id, false));
    assert_eq!(followers(&w).await.len(), 2);
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_fault_is_told_in_terms_of_the_requests(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let keyed = |args: &str| JobRequest { key: Some("k".to_owned()), ..JobRequest::new("hang", args) };
    client.enqueue_one(keyed("[]")).await.unwrap();
    let refused = client.enqueue(vec![followed("ok"), followed("ok"), keyed("[1]")]).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::KeyConflict { index: 2, .. }), "{refused:?}");
    let stranger = JobRequest { followed_by: Some(Box::new(job("nobody's"))), ..job("ok") };
    let refused = client.enqueue(vec![followed("ok"), stranger]).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::UnknownTask { index: 1, .. }), "{refused:?}");
    assert_eq!(followers(&w).await, vec![]);
    w.stop(&engine).await;
    w.is_sound().await;
}
