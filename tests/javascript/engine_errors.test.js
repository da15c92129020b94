// Errors: their classes after they were sent, and the classes of errors of the runtime.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as errors from "../../viz_app/site/engine/errors.js";

const { EngineError, OutOfMemoryError, WebAssemblyError, fromSent, toSent, typedError } = errors;

test("An error keeps its class and message when it is sent", () => {
  const classes = Object.values(errors).filter(
    (value) => value === EngineError || value.prototype instanceof EngineError,
  );
  assert.equal(classes.length, 8);
  for (const errorClass of classes) {
    const received = fromSent(structuredClone(toSent(new errorClass("What happened."))));
    assert.equal(received.constructor, errorClass);
    assert.equal(received.name, errorClass.name);
    assert.equal(received.message, "What happened.");
    assert.ok(received instanceof EngineError);
  }
  assert.equal(fromSent(toSent(new TypeError("x"))).constructor, EngineError);
  assert.equal(fromSent(toSent("x")).message, "x");
});

test("Errors of the runtime that stand for a full memory are recognised", () => {
  const other = (reason) => new EngineError(reason);
  for (const error of [
    new RangeError("Array buffer allocation failed"),
    new Error("no available backend found. ERR: [wasm] RangeError: WebAssembly.Memory(): could not allocate memory"),
    new Error("failed to call OrtRun(). ERROR_CODE: 6, ERROR_MESSAGE: std::bad_alloc"),
    new Error("no available backend found. ERR: [wasm] 123456"),
    new WebAssembly.RuntimeError("Aborted(OOM)"),
    new WebAssembly.RuntimeError("memory access out of bounds"),
    123456,
  ]) {
    assert.equal(typedError(error, other).constructor, OutOfMemoryError, String(error));
  }
  const blocked = new WebAssembly.CompileError("violates the following Content Security policy directive");
  assert.equal(typedError(blocked, other).constructor, WebAssemblyError);
  const unknown = typedError(new Error("ERROR_CODE: 2, invalid graph"), other);
  assert.equal(unknown.constructor, EngineError);
  assert.match(unknown.message, /invalid graph/);
  const own = new errors.DownloadError("out of memory");
  assert.equal(typedError(own, other), own);
});
