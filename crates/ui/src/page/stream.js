// The stream of events: it comes back by itself, and says when it is away.

// Something comes every second.
const SILENCE = 5000;
const AGAIN = [500, 1000, 2000, 5000];

/**
 * Listens to `url`, with a handler for each event's name. `state("live" | "lost", since)`
 * is told of changes.
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
    // The browser would come back by itself, but not after every answer, nor from silence.
    source.onerror = lost;
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        alive();
        handler(JSON.parse(event.data));
      });
    }
    watchdog = setTimeout(lost, SILENCE);
  };

  // A browser opens six connections to a server at most, for all of its pages: one that
  // nobody sees, in another tab or where "back" leads, keeps none of them from the others.
  const look = () => {
    clearTimeout(watchdog);
    clearTimeout(again);
    source?.close();
    if (!document.hidden) connect();
  };

  document.addEventListener("visibilitychange", look);
  look();
}
