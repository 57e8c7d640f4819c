// The frames of this worker against the samples that the server and the Python worker are tested with. Run by
// `node --test examples/node-worker/worker.test.mjs`, and so by the tests of the server.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import test from 'node:test';
import { Frames, bad, doneFailed, doneOk, frame, hello, permit, progress } from './worker.mjs';

const samples = fs.readFileSync(new URL('../../protocol/samples/frames.txt', import.meta.url), 'utf8').split('\n');
const lines = (direction) => samples.filter((line) => line.startsWith(`${direction} `)).map((line) => line.slice(2));

/** The same frame, made by the functions that the worker uses. */
function made(line) {
  const f = JSON.parse(line);
  const left = Object.fromEntries(['dirty', 'spawned'].filter((key) => key in f).map((key) => [key, f[key]]));
  const error = { type: f.type, message: f.message, traceback: f.traceback };
  switch (f.t) {
    case 'hello':
      return hello(f.pid, f.lang, f.tasks, f.files);
    case 'bad':
      return bad(Object.assign(new Error(f.message), { name: f.type, stack: f.traceback }), f.files);
    case 'progress':
      return progress(f.token, f.done, f.total, f.note);
    default:
      // The text of the result, because JavaScript has no number as large as the one in the sample.
      return f.ok ? doneOk(f.token, line.match(/"result":(.*)\}$/)[1], left) : doneFailed(f.token, f.cause === 'fatal', error, f.after_ms, left);
  }
}

test('every frame to the server is made as the sample has it', () => {
  assert.deepEqual(new Set(lines('<').map((line) => JSON.parse(line).t)), new Set(['hello', 'bad', 'progress', 'done']));
  // This worker takes no jobs ahead, and says so by leaving that out.
  for (const line of lines('<')) assert.equal(made(line), line.replace('"ahead":true,', ''));
});

test('what is left behind stands at the end', () => {
  assert.equal(doneOk('t', '[1]', { dirty: true, spawned: true }), '{"t":"done","token":"t","ok":true,"result":[1],"dirty":true,"spawned":true}');
});

test('every frame from the server is read, in pieces of any size', () => {
  const all = Buffer.concat(lines('>').map(frame));
  for (const size of [1, 7, 64, all.length]) {
    const frames = new Frames();
    const read = [];
    for (let at = 0; at < all.length; at += size) read.push(...frames.take(all.subarray(at, at + size)));
    assert.deepEqual(read, lines('>').map((line) => JSON.parse(line)));
  }
});

test('a permit is the token of its frame', () => {
  assert.equal(permit(Buffer.from([0x6f, 0x1d, 0x0a, 0x9b, 0x8c, 0x7e, 0x6f, 0x50])), '6f1d0a9b8c7e6f50');
});

test('what is no frame is refused', () => {
  assert.throws(() => [...new Frames().take(Buffer.from([0xff, 0xff, 0xff, 0xff]))], /a frame of/);
  for (const text of ['{}', '[]', 'null', 'nothing']) assert.throws(() => [...new Frames().take(frame(text))]);
});
