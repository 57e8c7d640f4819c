//! The cases, by what they are about, and the one table of them. A case that is not in the table is dead code.

use crate::harness::{Harness, Open, run_case};

// In the open, not by the macro: rustfmt finds only such.
mod cancelling;
mod claiming;
mod enqueueing;
mod fairness;
mod flow_tables;
mod flows;
mod keeping;
mod keys;
mod leases;
mod life_cycle;
mod limits;
mod listing;
mod parking;
mod queues;
mod rates;
mod resting;
mod schedule_flows;
mod schedules;
mod why;

/// Writes the table, and the macro that makes a test of each of its rows.
macro_rules! table {
    ($d:tt $($module:ident { $($case:ident)+ })+) => {
        /// Every case by its name.
        const CASES: &[(&str, fn(&mut Harness))] =
            &[$($((concat!(stringify!($module), "::", stringify!($case)), $module::$case)),+),+];

        /// Makes each case a `#[test]` of its own: `ax_conformance::suite!(open);`, where `open` is a function from the
        /// clock (`Arc<HandClock>`) to an empty store (`Box<dyn Subject>`).
        #[macro_export]
        macro_rules! suite {
            ($d open:ident) => {
                $(mod $module {
                    $(#[test]
                    fn $case() {
                        $d crate::cases::run(concat!(stringify!($module), "::", stringify!($case)), &super::$d open);
                    })+
                })+

                mod random_histories {
                    #[test]
                    fn the_store_and_the_memory_model_agree_on_random_histories() {
                        $d crate::random::run(&super::$d open);
                    }
                }
            };
        }
    };
}

/// Runs the case of this name.
///
/// # Panics
/// When the store does not do what the case demands, or there is no such case.
pub fn run(name: &str, open: &Open) {
    let (_, case) = CASES.iter().find(|(n, _)| *n == name).expect("a case of that name");
    run_case(*case, open);
}

table! { $
    life_cycle {
        every_event_in_every_state_does_what_decide_says
        a_claimed_row_is_what_decide_makes_of_it
        a_batch_of_events_is_applied_in_order_and_a_refusal_harms_no_other
        unknown_ids_are_none_or_not_found
        a_handed_back_attempts_number_is_given_out_again
        a_written_start_that_came_to_nothing_is_handed_back_at_no_cost
        result_and_error_texts_are_kept
        the_past_is_told_oldest_first
        progress_is_noted_for_the_current_attempt_only
        a_held_job_waits_for_a_person
    }
    enqueueing {
        what_is_stored_is_what_was_asked
        a_batch_is_stored_whole_or_not_at_all
        clients_may_choose_ids
        what_goes_with_a_job_is_stored_exactly_if_that_is_new
        a_chain_that_goes_together_is_stored_whole_or_not
        ten_thousand_jobs_in_one_batch
        c115_every_text_comes_back_as_it_was
        the_catalogue_keeps_the_newest_word_of_each_task
        what_was_acknowledged_is_there_after_a_restart
    }
    keys {
        keep_answers_with_the_job_that_is_there
        replace_changes_a_waiting_job_and_keeps_its_name
        reschedule_moves_a_waiting_job
        an_attempt_makes_it_too_late_to_replace_or_reschedule
        a_job_that_depends_on_others_is_not_replaced
        a_key_lives_as_long_as_its_job_and_its_window
        a_key_belongs_to_its_task
        keys_of_one_batch_see_each_other_in_order
        a_refused_batch_takes_back_what_it_rescheduled
        a_retry_is_refused_while_another_live_job_has_the_key
        a_retried_job_takes_its_key_again
        c097_of_a_hundred_concurrent_enqueues_one_creates
        c098_other_content_is_a_conflict_and_other_key_order_is_not
        c099_a_dead_jobs_key_is_free_after_its_window
    }
    claiming {
        only_offered_tasks_are_taken_up_to_the_limit
        the_order_is_band_then_priority_then_due_time_then_enqueue
        every_fourth_claim_goes_to_the_most_overdue_aged_job
        nothing_is_taken_before_its_time
        c010_a_planned_job_is_handed_out_once
        c050_far_dates_never_fire_early
        c055_a_clock_that_jumps_ahead_and_back_fires_nothing_twice
        tokens_come_from_the_seed_and_differ
        a_start_is_written_first_where_it_matters
        concurrent_claims_share_no_job
        a_blocked_head_does_not_block_others
    }
    queues {
        a_paused_queue_gives_nothing_and_resumes_whole
        c102_retry_while_paused_then_resume_loses_none
        c103_nothing_falls_due_into_a_paused_queue
        c104_a_pause_outlives_a_restart
        a_limit_counts_dispatched_and_running
        c060_a_cancel_frees_the_slot
        c023_a_death_frees_the_slot
        a_lowered_limit_lets_running_jobs_be
        settings_are_told_and_kept
    }
    schedules {
        a_schedule_is_kept_changed_listed_and_deleted
        a_declaration_and_a_pause_outlive_a_restart
        a_removed_one_does_not_come_back_by_the_same_words
        due_ones_are_told_the_longest_due_first
        c108_large_jobs_are_listed_and_told_as_due_in_bounds
        c049_a_tick_makes_one_job_that_is_found_by_its_record
        a_tick_is_decided_once_whoever_fires
        c055_a_clock_set_back_goes_on_firing_and_repeats_nothing
        late_ticks_are_one_record
        overlap_is_judged_by_the_jobs_that_have_not_ended
        cancel_old_ends_what_waits_and_asks_what_runs
        queue_waits_for_the_end_of_those_before
        a_template_that_makes_no_job_is_told
        a_changed_schedule_is_not_fired_by_its_old_content
        by_hand_it_runs_whatever_the_schedule_says
        records_go_with_their_job_or_after_their_time
        c103_ticks_make_jobs_of_a_paused_queue_and_nothing_starts
    }
    schedule_flows {
        a_queued_tick_waits_for_the_flow_before_it_and_its_further_runs
        a_tick_stands_where_its_flow_does
        a_tick_stands_where_its_flow_does_when_older_runs_are_deleted
        a_tick_stands_where_its_flow_did_when_the_newest_run_is_deleted
        a_flow_that_runs_again_holds_back_the_queue_again
        cancel_old_ends_the_flow_and_it_is_not_run_again
        a_flow_that_comes_after_the_cancel_of_its_tick_is_not_stored
        the_queue_is_counted_in_ticks_however_large_their_flows
    }
    why {
        each_gate_is_named_and_lifted
        c028_a_hung_run_is_named_as_what_blocks
        a_pause_is_told_with_its_beginning_and_reason
        the_number_ahead_is_the_order_of_claims
        why_and_claim_agree_on_mixed_stores
        each_limit_is_a_gate_of_its_own
    }
    parking {
        woken_by_an_enqueue
        woken_by_the_due_time
        woken_by_a_resume
        woken_by_a_freed_slot
        woken_by_a_raised_limit
        woken_by_a_retry
        woken_by_a_hand_back
        woken_by_a_recovery
        not_woken_by_what_it_did_not_ask_for
        several_wait_in_order_of_arrival
        a_dropped_wait_takes_nothing
        an_answer_that_no_one_takes_is_handed_back
    }
    leases {
        c012_a_sweep_that_comes_late_changes_nothing
        c015_an_old_attempts_word_is_refused_under_a_new_lease
        a_fence_must_name_both_number_and_token
        an_attempt_of_another_job_is_lost
        c022_two_thousand_lost_leases_are_recovered
        c027_a_restarted_node_is_another_node
        c029_a_claim_that_never_started_costs_nothing
        an_interruption_costs_no_attempt_but_has_its_own_limit
        recovery_holds_what_must_not_run_twice
        recovery_cancels_what_was_to_be_cancelled
        recovery_stops_at_its_limit_and_spares_the_living
        leases_outlive_a_restart_of_the_store
    }
    cancelling {
        c118_cancel_ends_a_waiting_job_and_asks_a_running_one
        c118_a_cancel_after_the_claim_ends_with_the_hand_back
        c119_a_result_that_was_there_first_wins
        c119_cancel_and_finish_at_once_give_one_end_state
        a_failure_of_a_job_to_be_cancelled_is_its_last
        cancelling_twice_or_too_late
    }
    keeping {
        what_did_not_start_in_time_is_dead
        a_started_job_does_not_expire
        expiry_stops_at_its_limit
        prune_deletes_old_final_jobs_only
        prune_spares_jobs_whose_key_lives
        prune_goes_on_where_it_stopped
        a_pruned_row_number_is_not_used_again
    }
    listing {
        every_filter_finds_its_jobs
        ids_are_found_by_their_range
        filters_are_joined_by_and
        c108_lists_leave_out_large_arguments_and_results
        c108_lists_cut_long_errors
        c112_a_walk_sees_every_job_once_while_states_change
        c113_the_last_page_says_so
        c113_what_matches_is_counted
        few_of_many_are_found_in_every_state
        c115_names_in_any_script_are_found
        c125_what_looks_like_sql_is_only_text
        an_ancestor_is_found_with_its_descendants
        counts_of_days_and_of_all_time
        queues_are_told_with_their_counts
        lanes_are_told_with_their_sums
    }
    limits {
        a_key_without_a_limit_runs_one_at_a_time_whatever_the_task_and_queue
        a_limit_of_a_key_is_its_own_else_that_of_every_key
        a_task_is_limited_over_all_its_queues
        a_limit_for_each_node_leaves_the_others_alone
        c060_a_cancelled_job_frees_the_place_of_its_key
        every_end_of_an_attempt_frees_its_places
        a_place_that_is_freed_wakes_a_parked_claim
        a_lowered_limit_ends_nothing_and_starts_nothing
        jobs_behind_a_full_key_do_not_keep_others_back
        jobs_with_keys_keep_their_place_in_the_order
        a_keyed_job_that_moves_is_found_where_it_is
        limits_are_kept_over_a_restart_and_listed
        a_declaration_does_not_undo_what_people_changed
        a_key_is_counted_and_listed_like_any_job
        c033_a_child_takes_a_place_of_its_key_only_when_it_runs
    }
    rates {
        no_more_start_in_a_window_than_the_rate_allows
        a_parked_claim_wakes_when_the_window_opens
        what_never_began_does_not_count
        a_rate_lives_on_over_a_restart
        c055_a_clock_that_steps_back_neither_opens_a_rate_nor_shuts_it_for_long
        each_scope_has_a_rate_of_its_own
    }
    fairness {
        keys_take_turns_in_a_fair_queue
        jobs_without_a_key_take_turns_as_one
        priority_goes_before_turns
        a_fair_queue_stands_where_its_longest_due_job_stands
        the_share_of_the_aged_goes_to_the_longest_due
        without_fairness_the_order_is_that_of_due_times
    }
    flow_tables {
        c033_every_end_of_a_parent_decides_each_kind_of_edge
        every_end_leaves_a_child_that_is_decided_as_the_page_says
    }
    flows {
        an_end_leaves_children_that_have_begun_or_ended_alone
        all_success_edges_and_any_failure_edge_count
        c035_a_join_is_decided_once_and_siblings_end_normally
        c033_a_skip_goes_all_the_way_down
        c034_a_parent_that_is_gone_is_refused_and_one_that_is_needed_stays
        c036_a_circle_is_refused_with_its_path
        c037_a_retry_lets_skipped_jobs_follow
        a_retry_leaves_what_has_begun
        a_flow_that_dies_is_run_again_from_what_failed
        a_run_from_the_start_has_every_node
        a_place_for_a_result_stays_one_when_its_parent_is_gone
        a_flow_can_be_run_again_whole_and_not_more_often_than_it_may
        a_cancelled_flow_ends_cancelled_and_is_not_run_again
        c038_runs_of_one_flow_do_not_mix
        a_retried_job_reopens_its_flow
        what_a_map_node_makes_is_waited_for
        a_map_node_that_is_over_makes_no_more_jobs
        a_flow_is_pruned_as_a_whole_by_how_it_ended
        a_flow_in_the_middle_of_its_deletion_is_not_run_again
        a_run_from_the_start_has_what_is_left_of_every_run
        a_waiting_claim_gets_a_child_with_the_end_of_its_parent
    }
    resting {
        those_at_rest_are_told_with_their_results
        results_stop_at_their_limit_but_the_first_is_told
    }
}

/// The jobs of one task: what a case calls its own.
fn of_task(task: &str) -> ax_model::store::Filter {
    ax_model::store::Filter { task: Some(task.to_owned()), ..ax_model::store::Filter::default() }
}
