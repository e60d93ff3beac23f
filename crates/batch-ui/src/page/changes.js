// Changes of the job's settings. They need the token of the job's token file, which the page keeps
// in its field only.

import { byId, say } from "./dom.js";

const SETTINGS = { batch_size: "batch_size", concurrency: "concurrency", hosts: "hosts_setting" };

// The time for a second click, in milliseconds.
const CONFIRM = 5000;

// The settings that were received last: a field that the user has not changed follows them.
let known;
let paused = false;

/** The texts of the fields for a control object. */
function texts(control) {
  return {
    batch_size: control.batch_size?.toString() ?? "",
    concurrency: control.concurrency?.toString() ?? "",
    hosts: control.hosts?.join(",") ?? "",
  };
}

/** Shows the settings. */
export function draw({ can_change: canChange, status }) {
  byId("settings").hidden = !canChange || status?.state === "finished";
  byId("fixed").hidden = canChange || !status;
  if (status) show(status.control);
}

function show(control) {
  const now = texts(control);
  for (const [setting, id] of Object.entries(SETTINGS)) {
    const field = byId(id);
    if (known === undefined || field.value === known[setting]) field.value = now[setting];
  }
  known = now;
  paused = control.paused;
  say(byId("pause"), paused ? "Resume" : "Pause");
}

/** Sends a change, and shows its outcome. */
async function send(change, done) {
  const told = byId("told");
  say(told, "Sending…");
  told.classList.remove("trouble");
  try {
    const answer = await fetch(new URL("./control", import.meta.url), {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${byId("token").value}` },
      body: JSON.stringify(change),
    });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    show(await answer.json());
    say(told, done);
  } catch (error) {
    told.classList.add("trouble");
    say(told, error.message);
  }
}

/** Makes the fields and the buttons work. */
export function connect() {
  byId("settings").addEventListener("submit", (event) => {
    event.preventDefault();
    const changed = Object.entries(SETTINGS).map(([setting, id]) => [setting, byId(id).value.trim()]);
    const set = changed.filter(([setting, text]) => text !== known?.[setting]).map(([setting, text]) => `${setting}=${text}`);
    if (set.length === 0) say(byId("told"), "No setting differs.");
    else send({ set }, "Applied.");
  });
  byId("pause").addEventListener("click", () => send({ set: [`paused=${!paused}`] }, paused ? "The job goes on." : "Paused: requests in flight are finished."));
  const cancel = byId("cancel");
  // The second click counts.
  let armed;
  const disarm = () => {
    armed = clearTimeout(armed);
    say(cancel, "Cancel the job");
  };
  cancel.addEventListener("click", () => {
    if (armed !== undefined) {
      disarm();
      send({ cancel: true }, "Cancelled: what is committed stays, and the job goes on when it is run again.");
      return;
    }
    say(cancel, "Click again to cancel");
    armed = setTimeout(disarm, CONFIRM);
  });
}
