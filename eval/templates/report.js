// The threshold slider: recomputes the candidate's figures from its saved decisions. Same definitions as eval/metrics.py.
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("data").textContent);
  var input = document.getElementById("threshold");
  if (!input || !data.rows.length) { return; }

  function percent(value) { return value === null ? "–" : (100 * value).toFixed(1) + " %"; }
  function put(id, text) { document.getElementById(id).textContent = text; }

  function show() {
    var threshold = Number(input.value), said = 0, need = 0, good = 0, hits = 0, quiet = {};
    data.rows.forEach(function (row) {
      var speaks = row.can && row.p >= threshold;
      if (speaks) { said += 1; hits += row.need && row.good; }
      if (row.need) { need += 1; good += speaks && row.good; return; }
      var episode = quiet[row.e] || (quiet[row.e] = [0, 0]);
      episode[0] += speaks ? 1 : 0;
      episode[1] += 1;
    });
    var rates = Object.keys(quiet).map(function (key) { return quiet[key][0] / quiet[key][1]; });
    var mean = rates.length ? rates.reduce(function (a, b) { return a + b; }, 0) / rates.length : null;
    put("at", threshold.toFixed(2));
    put("fir", percent(mean));
    put("recall", percent(need ? good / need : null));
    put("hit", percent(said ? hits / said : null));
    put("rate", percent(said / data.rows.length));
    input.setAttribute("aria-valuetext", "threshold " + threshold.toFixed(2) + ", false interventions " + percent(mean));
  }

  input.addEventListener("input", show);
  show();
})();
