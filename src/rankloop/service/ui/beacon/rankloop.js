// Reports what users click in a list and what of it comes into view, with the token of the list and nothing else:
//   rankloop.watch(document.querySelector("#results"), token)
// Elements of the list have data-rankloop-id="…". Served without these comments and without the indent.
(() => {
  const home = new URL("v1/beacon", document.currentScript.src).href;
  // Plain text, so that no browser asks beforehand. A beacon outlives the page, but nobody hears whether it arrived; so
  // while the page stands `fetch` is the way, and what fails is sent again. The service knows an event by its event_id.
  const post = (body, leaving, tries = 0) => {
    const again = () => tries < 4 && setTimeout(post, 1e3 << tries, body, 0, tries + 1);
    if (!leaving || !navigator.sendBeacon?.(home, body))
      fetch(home, {method: "POST", body, keepalive: true}).then(r => r.status > 499 || r.status == 429 ? again() : r.json().then(
        ({results, message}) => (message || results.some(one => one.status == "rejected")) && console.warn("rankloop", message || results)), again);
  };
  window.rankloop = {
    // dnt: report nothing of users who ask not to be tracked.
    watch(element, token, {dnt} = {}) {
      if (!token || (dnt && (navigator.doNotTrack == 1 || navigator.globalPrivacyControl))) return {reward() {}, stop() {}};
      let events = [], viewed = [], timer = 0;
      const flush = leaving => {
        clearTimeout(timer);
        if (viewed.length) events.push({token, event_id: "v:" + viewed.at(-1), viewed});
        if (events.length) post(JSON.stringify(events), leaving);
        events = [], viewed = [], timer = 0;
      };
      const click = event => {
        const id = event.target.closest?.("[data-rankloop-id]")?.dataset.rankloopId;
        // A fetch with keepalive outlives the page, too, and is sent again if it fails; older browsers have only the beacon.
        if (id) events.push({token, event_id: "c:" + id, clicks: [id]}), flush(!("keepalive" in Request.prototype));
      };
      // Half of an item, or half a window full of it, is a view.
      const views = new IntersectionObserver(entries => {
        for (const {target, intersectionRatio: part, intersectionRect: rect} of entries)
          if (part >= .5 || rect.height > innerHeight / 2) viewed.push(target.dataset.rankloopId), views.unobserve(target);
        if (viewed.length) timer ||= setTimeout(flush, 1e3);
      }, {threshold: [0, .1, .2, .3, .4, .5]});
      const gone = () => document.visibilityState == "hidden" && flush(1), leave = () => flush(1);
      const listeners = [[element, "click", click], [element, "auxclick", click], [document, "visibilitychange", gone], [window, "pagehide", leave]];
      for (const [where, what, heard] of listeners) where.addEventListener(what, heard, true);
      for (const item of element.querySelectorAll("[data-rankloop-id]")) views.observe(item);
      return {
        // What is worth more than a click, in the unit of the ranker's reward, else from 0 to 1: list.reward("hat", 49.9).
        reward(id, value) { events.push({token, event_id: `r:${value}:${id}`, rewards: {[id]: value}}), flush(); },
        stop() {
          flush(1), views.disconnect();
          for (const [where, what, heard] of listeners) where.removeEventListener(what, heard, true);
        },
      };
    },
  };
})();
