// Tasks in JavaScript. `rea serve tasks.mjs --child ./worker.mjs`, then `rea enqueue tasks:add 2 3 --wait`.
import { setTimeout as sleep } from 'node:timers/promises';

export const tasks = {
  // What it returns is the job's result and must be JSON.
  add: (job, a, b) => a + b,

  // An error is final …
  refuse: (job, why) => {
    throw new RangeError(`no: ${why}`);
  },

  // … unless it says that the reason may pass.
  unsteady: {
    max_attempts: 5,
    retry_base_ms: 100,
    run: (job) => {
      console.log(`attempt ${job.attempt}`);
      if (job.attempt < 3) throw Object.assign(new Error('not yet'), { retryable: true });
      return job.attempt;
    },
  },

  // Progress, and an end that is asked for: cancel it, or let it run into its timeout.
  slow: {
    timeout_ms: 600_000,
    doc: 'Waits for so many seconds',
    run: async (job, seconds) => {
      for (let done = 0; done < seconds; done += 1) {
        job.progress(done, seconds, 'waiting');
        await sleep(1000, null, { signal: job.signal });
      }
      return seconds;
    },
  },
};
