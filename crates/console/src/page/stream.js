// The stream of events: reconnects after a failure, and reports its state.

// The server sends an event every second; after this time without one the stream is lost.
const SILENCE = 5000;
const AGAIN = [500, 1000, 2000, 5000];

/**
 * Listens to `url`, with a handler for each event's name. `state("live" | "lost", since)`
 * is called for changes.
 */
export function listen(url, handlers, state) {
  let source;
  let watchdog;
  let again;
  let failures = 0;
  let lostAt = null;

  const alive = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(lost, SILENCE);
    if (failures > 0 || lostAt !== undefined) state("live");
    failures = 0;
    lostAt = undefined;
  };

  const lost = () => {
    clearTimeout(watchdog);
    source.close();
    lostAt ??= Date.now();
    state("lost", lostAt);
    again = setTimeout(connect, AGAIN[Math.min(failures, AGAIN.length - 1)]);
    failures += 1;
  };

  const connect = () => {
    source = new EventSource(url);
    // The browser would reconnect, but not after every answer and not after silence.
    source.onerror = lost;
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        alive();
        handler(JSON.parse(event.data));
      });
    }
    watchdog = setTimeout(lost, SILENCE);
  };

  // A browser opens at most six connections to a server, for all of its pages together: a
  // hidden page, in another tab or in the history, closes its own for the others.
  const look = () => {
    clearTimeout(watchdog);
    clearTimeout(again);
    source?.close();
    if (!document.hidden) connect();
  };

  document.addEventListener("visibilitychange", look);
  look();
}
