#!/usr/bin/env node
// A worker for rea in JavaScript: `rea serve tasks.mjs --child ./worker.mjs`. One file, no dependencies, Node 18 or newer.
// It speaks protocol/child-protocol.md, whose section "A worker in another language" it is the example of.
//
// A file of tasks exports them by name: `export const tasks = { add: (job, a, b) => a + b }`, or with defaults for its jobs
// `{ slow: { run: async (job) => …, timeout_ms: 600_000, max_attempts: 5 } }`. `job` has `id`, `traceId`, `rootId`, `queue`,
// `attempt`, `key`, `kwargs`, `progress(done, total, note)` and `signal`, which is aborted when the job is to end. What is thrown ends the job
// for good, unless it has `retryable = true` (and perhaps `afterMs`) or says that a connection failed: then it is tried again.

import childProcess from 'node:child_process';
import { subscribe } from 'node:diagnostics_channel';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const HEADER = 4;
const FRAME_MAX = 8 * 1024 * 1024;
const PERMIT = 8;
const EXIT = { notStartedByRea: 2, badCode: 3, protocol: 4 };
const RETRYABLE = ['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'EAI_AGAIN', 'ENETUNREACH', 'EHOSTUNREACH'];
const DEFAULTS = ['queue', 'priority', 'max_attempts', 'timeout_ms', 'retry_base_ms', 'retry_cap_ms', 'on_crash', 'max_interruptions', 'memory_bytes', 'doc'];

// --- frames: text out, objects in ---

/** A frame: its length, and the JSON text. */
export function frame(text) {
  const body = Buffer.from(text, 'utf8');
  const head = Buffer.alloc(HEADER);
  head.writeUInt32BE(body.length);
  return Buffer.concat([head, body]);
}

/** Takes whole frames out of bytes that arrive in any pieces, as objects with a kind `t`. */
export class Frames {
  #held = Buffer.alloc(0);

  *take(bytes) {
    this.#held = Buffer.concat([this.#held, bytes]);
    while (this.#held.length >= HEADER) {
      const end = HEADER + this.#held.readUInt32BE(0);
      if (end > HEADER + FRAME_MAX) throw new Error(`a frame of ${end} bytes`);
      if (this.#held.length < end) return;
      const read = JSON.parse(this.#held.toString('utf8', HEADER, end));
      this.#held = this.#held.subarray(end);
      if (typeof read?.t !== 'string') throw new Error('a frame without a kind');
      yield read;
    }
  }
}

/** Reads a permit of eight bytes: the token of the frame it belongs to. */
export const permit = (bytes) => bytes.toString('hex');

export const hello = (pid, lang, tasks, files) => JSON.stringify({ t: 'hello', v: 1, pid, lang, tasks, files });

export const bad = (error, files) => JSON.stringify({ t: 'bad', ...said(error), files });

export const progress = (token, done, total = null, note = null) =>
  JSON.stringify({ t: 'progress', token, done, total, note: note === null ? null : String(note).slice(0, 1000) });

/** `result` is JSON text: it is measured before it gets here. */
export const doneOk = (token, result, left = {}) =>
  `${JSON.stringify({ t: 'done', token, ok: true }).slice(0, -1)},"result":${result}${JSON.stringify(left).slice(1, -1).replace(/^./, ',$&')}}`;

export const doneFailed = (token, fatal, { type, message, traceback }, afterMs, left = {}) =>
  JSON.stringify({ t: 'done', token, ok: false, cause: fatal ? 'fatal' : 'error', type, message, traceback, after_ms: afterMs, ...left });

function said(error) {
  if (!(error instanceof Error)) return { type: typeof error, message: String(error), traceback: null };
  const type = typeof error.code === 'string' ? error.code : error.name;
  return { type: String(type), message: String(error.message), traceback: error.stack ?? null };
}

// --- the user's code ---

/** Loads what `REA_LOAD` names. Gives the tasks by name, as `file:task`, and the files. */
async function load(text) {
  const tasks = new Map();
  const files = [];
  for (const { file, module } of JSON.parse(text)) {
    const where = file ?? createRequire(`${process.cwd()}/`).resolve(module);
    files.push(where);
    const loaded = await import(pathToFileURL(where).href);
    const prefix = module ?? path.parse(where).name;
    for (const [name, task] of Object.entries(loaded.tasks ?? {})) {
      const run = typeof task === 'function' ? task : task.run;
      if (typeof run !== 'function') throw new TypeError(`the task ${name} in ${where} is no function and has no run()`);
      const wrong = Object.keys(task).find((key) => key !== 'run' && !DEFAULTS.includes(key));
      if (wrong) throw new TypeError(`the task ${name} in ${where} has ${wrong}; allowed are run, ${DEFAULTS.join(', ')}`);
      tasks.set(`${prefix}:${name}`, { ...task, run });
    }
  }
  if (tasks.size === 0) {
    const error = new Error('no tasks were found; a file of tasks has `export const tasks = { add: (job, a, b) => a + b }`');
    error.name = 'NoTasks';
    error.stack = null;
    throw Object.assign(error, { files });
  }
  return { tasks, files };
}

/** The JSON text of a result; throws what is told of one that has none. */
function toJson(value, most) {
  const fail = (name, message) => Object.assign(new Error(message), { name, stack: null });
  let text;
  try {
    text = JSON.stringify(value) ?? 'null';
  } catch (error) {
    throw fail('NotJson', `the result is not JSON: ${error.message}`);
  }
  const size = Buffer.byteLength(text);
  if (size > most) throw fail('ResultTooLarge', `the result is ${size} bytes of JSON, the limit is ${most}; return where it is instead`);
  return text;
}

// --- what a job leaves behind ---

let spawned = false;

/** From now on it is noticed when a job starts a process. */
function watchForProcesses() {
  subscribe('child_process', () => (spawned = true));
  // These do not tell that channel. They wait for the process, but not for what it has started.
  for (const name of ['spawnSync', 'execSync', 'execFileSync']) {
    const original = childProcess[name];
    childProcess[name] = (...args) => {
      spawned = true;
      return original(...args);
    };
  }
  syncBuiltinESMExports();
}

/** How many timers and threads there are that would go on by themselves. */
const active = () => process.getActiveResourcesInfo().filter((kind) => ['Timeout', 'Immediate', 'MessagePort', 'Worker'].includes(kind)).length;

// --- the life of a worker ---

class Worker {
  #running = null;
  #frames = [];
  #permits = [];
  #mayGo = true;

  constructor(socket, permits) {
    this.socket = socket;
    this.permits = permits;
  }

  /** Says hello and runs jobs, one at a time, until the server closes its ends. */
  serve(tasks, files) {
    this.tasks = tasks;
    process.on('SIGTERM', () => (this.#running ? this.#running.abort(new Error('the job is being stopped')) : process.exit(0)));
    const frames = new Frames();
    let held = Buffer.alloc(0);
    this.#listen(this.socket, (bytes) => {
      for (const read of frames.take(bytes)) {
        if (read.t === 'run') this.#frames.push(read);
        else if (read.t === 'go') this.#mayGo = true;
        else throw new Error(`an unknown kind of frame: ${read.t}`);
      }
      this.#next();
    });
    // A worker that does not say `ahead` never has more than one permit waiting for it, so none is read too early.
    this.#listen(this.permits, (bytes) => {
      held = Buffer.concat([held, bytes]);
      for (; held.length >= PERMIT; held = held.subarray(PERMIT)) this.#permits.push(permit(held.subarray(0, PERMIT)));
      this.#next();
    });
    this.#send(hello(process.pid, `node ${process.versions.node}`, describe(tasks), files));
  }

  #listen(socket, take) {
    socket.on('data', (bytes) => {
      try {
        take(bytes);
      } catch (error) {
        console.error(`rea worker: the protocol is broken: ${error.message}`);
        process.exit(EXIT.protocol);
      }
    });
    socket.on('error', () => process.exit(EXIT.protocol));
    socket.on('end', () => process.exit(0));
  }

  #send(text) {
    this.socket.write(frame(text));
  }

  /** Begins the job whose permit has been read, once its frame is here. Frames before it were taken back. */
  #next() {
    if (this.#running || !this.#mayGo || this.#permits.length === 0) return;
    const place = this.#frames.findIndex((read) => read.token === this.#permits[0]);
    if (place < 0) return;
    const read = this.#frames.splice(0, place + 1).pop();
    this.#permits.shift();
    this.#run(read);
  }

  async #run(read) {
    const { token } = read;
    const stop = (this.#running = new AbortController());
    const before = active();
    spawned = false;
    let answer;
    try {
      const task = this.tasks.get(read.task);
      // A newer worker may know it.
      if (!task) throw Object.assign(new Error(`this worker has no task ${read.task}`), { name: 'UnknownTask', retryable: true, stack: null });
      const job = {
        id: read.task_id, traceId: read.trace_id, rootId: read.root_id, queue: read.queue, attempt: read.attempt,
        maxAttempts: read.max_attempts, key: read.key, kwargs: read.kwargs, signal: stop.signal,
        progress: (...how) => this.#send(progress(token, ...how)),
      };
      const result = toJson(await task.run(job, ...read.args), read.result_max);
      answer = (left) => doneOk(token, result, left);
    } catch (error) {
      const again = error?.retryable === true || RETRYABLE.includes(error?.code);
      answer = (left) => doneFailed(token, !again, said(error), again ? error.afterMs : undefined, left);
    }
    // The server has given up on this attempt, and does not listen any more.
    if (stop.signal.aborted) process.exit(0);
    const left = {};
    if (active() > before) left.dirty = true;
    if (spawned) left.spawned = true;
    this.#running = null;
    this.#mayGo = Object.keys(left).length === 0;
    // Pipes are written at once, so what the job printed stands before this.
    this.#send(answer(left));
    this.#next();
  }
}

function describe(tasks) {
  const one = ([name, task]) => ({ name, ...Object.fromEntries(DEFAULTS.filter((key) => key in task).map((key) => [key, task[key]])) });
  return [...tasks].map(one);
}

/** Takes a variable out of the environment: jobs and their processes have no use for it. */
function taken(name) {
  const value = process.env[name];
  delete process.env[name];
  return value;
}

async function main() {
  const [fd, permits, text] = ['REA_FD', 'REA_PERMITS', 'REA_LOAD'].map(taken);
  taken('REA_OUTPUTS');
  if (!fd || !permits) {
    console.error('this is started by the server: rea serve tasks.mjs --child ./worker.mjs');
    process.exit(EXIT.notStartedByRea);
  }
  // Node itself keeps inherited descriptors from the processes that it starts.
  const socket = new net.Socket({ fd: Number(fd), allowHalfOpen: true });
  const worker = new Worker(socket, new net.Socket({ fd: Number(permits), allowHalfOpen: true }));
  let code;
  try {
    code = await load(text ?? '[]');
  } catch (error) {
    const files = error?.files ?? JSON.parse(text ?? '[]').map((one) => one.file).filter(Boolean);
    socket.end(frame(bad(error, files)), () => process.exit(EXIT.badCode));
    return;
  }
  watchForProcesses();
  worker.serve(code.tasks, code.files);
}

// Not when a test imports this file for its frames.
if (process.env.REA_FD || process.argv[1]?.endsWith('worker.mjs')) await main();
