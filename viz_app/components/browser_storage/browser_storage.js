// A text that this browser keeps. Where it may keep nothing, as in some private windows, there is nothing to give back.

/** @import { Handed, StorageMessage } from "../messages.d.ts" */

/** @param {Handed<StorageMessage>} handed */
export default function browser_storage({ data, setTriggerValue }) {
  const place = `headlight.${data.name}`;
  try {
    const storage = data.tab ? window.sessionStorage : window.localStorage;
    if (data.text === null) setTriggerValue("kept", storage.getItem(place) ?? "");
    else storage.setItem(place, data.text);
  } catch {
    if (data.text === null) setTriggerValue("kept", "");
  }
}
