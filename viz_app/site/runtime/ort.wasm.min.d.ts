// The types of the runtime; those of its programming interface come with the npm package.
export * from "onnxruntime-common";
