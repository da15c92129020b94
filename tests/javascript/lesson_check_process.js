// The checks of lessons as a process: a line of JSON on the standard input asks for verdicts, or answers a request of
// the checks for a text or a run, which is a line of the standard output.

import { createInterface } from "node:readline";
import { lessonChecks, UnsuitableError } from "../../viz_app/site/app/lesson_checks.js";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value ?? "null");
const write = (/** @type {unknown} */ value) => console.log(JSON.stringify(value));

const ask = (/** @type {object} */ message) => {
  write(message);
  return read();
};
const runs = {
  encode: (/** @type {object} */ request) => ask({ kind: "encode", request }),
  run: (/** @type {object} */ request) => ask({ kind: "run", request }),
};

for (let question = await read(); question; question = await read()) {
  const { check, context, answers } = question;
  const progress = /** @type {number[][]} */ ([]);
  const onProgress = (/** @type {number[]} */ ...numbers) => progress.push(numbers);
  try {
    const record = await lessonChecks[check].record({ ...context, runs, onProgress });
    const verdicts = answers.map((/** @type {unknown} */ answer) =>
      lessonChecks[check].judge(record, answer, context.settings),
    );
    write({ kind: "verdicts", record, verdicts, progress });
  } catch (error) {
    if (!(error instanceof UnsuitableError)) throw error;
    write({ kind: "unsuitable", key: error.key, fields: error.fields });
  }
}
