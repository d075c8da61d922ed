// How long work still takes, from how fast it was since this page saw it first.

const first = new Map(); // id of a run -> { at, step }

// ", 40 s left"; nothing until two different steps were seen.
export function timeLeft(id, step, steps) {
  const now = performance.now() / 1000;
  if (!first.has(id)) first.set(id, { at: now, step });
  const { at, step: from } = first.get(id);
  return step > from ? `, ${duration((steps - step) * (now - at) / (step - from))} left` : "";
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
