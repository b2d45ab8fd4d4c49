/** Refreshes the page that is open: not while the tab is hidden, less often while the gateway is slow or fails. */

const LONGEST = 60; // seconds between two attempts while calls fail
const SHARE = 10; // a refresh that takes a second is followed by a pause of ten

export class Live {
  #load;
  #failed;
  #pace;
  #timer = null;
  #stop = null;
  #failures = 0;
  #shown = false;

  /** `load(signal)` shows the page anew, `failed(error)` tells of a failure, or with null of its end. */
  constructor(load, failed, pace) {
    this.#load = load;
    this.#failed = failed;
    this.#pace = pace;
    document.addEventListener("visibilitychange", this.#seen);
  }

  #seen = () => {
    if (document.hidden) this.#cancel();
    else if (this.#pace || !this.#shown) this.now(); // a paused page stays as it is
  };

  /** Refresh now, then every `pace` seconds; 0 is only once. */
  async now() {
    this.#cancel();
    const stop = (this.#stop = new AbortController());
    const begun = performance.now();
    let pause = this.#pace;
    try {
      await this.#load(stop.signal);
      if (stop.signal.aborted) return;
      this.#failures = 0;
      this.#shown = true;
      this.#failed(null);
    } catch (error) {
      if (stop.signal.aborted) return;
      this.#failures += 1;
      pause = Math.min(LONGEST, Math.max(error.retryAfter ?? 0, 2 ** this.#failures));
      if (this.#failed(error) === "stop") return;
    }
    if (!this.#pace || document.hidden) return;
    pause = Math.max(pause, (SHARE * (performance.now() - begun)) / 1000);
    this.#timer = setTimeout(() => this.now(), pause * 1000);
  }

  set pace(seconds) {
    this.#pace = seconds;
    if (seconds || !this.#shown) this.now();
    else this.#cancel();
  }

  #cancel() {
    clearTimeout(this.#timer);
    this.#stop?.abort();
  }

  close() {
    this.#cancel();
    document.removeEventListener("visibilitychange", this.#seen);
  }
}
