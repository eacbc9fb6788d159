"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const isNarrow = () => window.innerWidth < 640;
  // Plotly reads some HTML in texts, so names must be escaped even there.
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // Three digits, and a power of 1000.
  function amount(value, unit) {
    const prefixes = ["", "k", "M", "G", "T", "P"];
    let scaled = value, power = 0;
    while (scaled >= 999.5 && power + 1 < prefixes.length) { scaled /= 1000; power += 1; }
    return `${Number(scaled.toPrecision(3))} ${prefixes[power]}${unit}`;
  }

  const bytes = (size) => amount(size, "B");

  // -- tables: a click on a heading sorts by its column, numbers from the largest on ---------------

  function compare(one, other) {
    const [a, b] = [one.dataset.order, other.dataset.order];
    if (a !== undefined && b !== undefined) return Number(a) - Number(b);
    return one.textContent.localeCompare(other.textContent, "en", { numeric: true });
  }

  function sortBy(heading) {
    const table = heading.closest("table");
    const body = table.tBodies[0];
    const column = heading.cellIndex;
    const before = heading.getAttribute("aria-sort");
    const first = heading.classList.contains("number") ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const order = before === first ? second : first;
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => [row.cells[column], row]);
    rows.sort(([one], [other]) => sign * compare(one, other));
    body.append(...rows.map(([, row]) => row));
  }

  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => sortBy(button.parentElement));
  }

  // -- charts --------------------------------------------------------------------------------------

  const config = { responsive: true, displayModeBar: false, doubleClick: "reset" };

  const legend = (y) => ({
    orientation: "h", x: 0, y, yanchor: "top", traceorder: "normal", font: { color: color("text") },
    maxheight: 1,
  });

  function layout(extra) {
    const narrow = isNarrow();
    const axis = {
      gridcolor: color("grid"), linecolor: color("line"), zerolinecolor: color("line"),
      automargin: true, fixedrange: narrow,
    };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("quiet") },
      hoverlabel: {
        bgcolor: color("surface"), bordercolor: color("line"), align: "left",
        font: { color: color("text"), family: getComputedStyle(document.body).fontFamily },
      },
      margin: { l: 8, r: 8, t: 8, b: 8 }, height: narrow ? 300 : 340,
      dragmode: narrow ? false : "zoom", showlegend: true,
      legend: legend(-0.14),
      bargap: 0.15, ...extra,
      xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis },
    };
  }

  const bytesAxis = { tickformat: "~s", ticksuffix: "B", rangemode: "tozero" };

  function draw(id, traces, extra) {
    const chart = byId(id);
    chart.classList.remove("empty");
    return Plotly.react(chart, traces, layout(extra), config);
  }

  function nothing(id, text) {
    const chart = byId(id);
    if (chart.data) Plotly.purge(chart);
    chart.classList.add("empty");
    chart.textContent = text;
  }

  // The last of many series is the sum of the others, in gray.
  const seriesColor = (index, name) => color(/^[\d,]+ others$/.test(name) ? "s8" : `s${(index % 7) + 1}`);

  // On a phone, the names of a legend are below each other.
  const growthHeight = (count) => (isNarrow() ? 300 + 20 * count : 360);

  function drawGrowth() {
    const chosen = byId("growth-topic").value;
    const metric = document.querySelector("input[name=metric]:checked").value;
    const { begin, width, series } = chosen === "" ? data.all : data.topics[chosen].growth;
    if (!series.length) return nothing("growth-chart", "No record has a timestamp.");
    const axis = series[0].sizes.map((_, at) => begin + at * width);
    const label = (name) => escaped(chosen === "" ? name : /others$/.test(name) ? name : `partition ${name}`);
    if (metric === "size") {
      const traces = series.map((each, index) => ({
        type: "scatter", mode: "lines", stackgroup: "size", name: label(each.name), x: axis, y: each.sizes,
        line: { width: 1.5, color: seriesColor(index, each.name) }, hovertemplate: "%{y:.3s}B",
      }));
      return draw("growth-chart", traces, {
        height: growthHeight(series.length), hovermode: "x unified", xaxis: { type: "date" },
        yaxis: bytesAxis,
      });
    }
    const unit = metric === "rate" ? "B/s" : "/s";
    const traces = series.map((each, index) => {
      const total = metric === "rate" ? each.sizes : each.offsets;
      const rates = total.slice(1).map((value, at) => (value - total[at]) / (width / 1000));
      return {
        type: "bar", name: label(each.name), x: axis.slice(0, -1), offset: 0, width,
        y: rates, customdata: rates.map((rate) => amount(rate, unit)),
        marker: { color: seriesColor(index, each.name), line: { width: 0 } }, hovertemplate: "%{customdata}",
      };
    });
    return draw("growth-chart", traces, {
      barmode: "stack", bargap: 0, height: growthHeight(series.length), hovermode: "x unified",
      xaxis: { type: "date" },
      yaxis: { exponentformat: "SI", ticksuffix: unit, rangemode: "tozero" },
    });
  }

  function drawSkew() {
    const topic = data.topics[byId("skew-topic").value];
    if (!topic) return nothing("skew-chart", "No topic has records and several partitions.");
    const bars = topic.bars;
    const things = data.isDeep ? "records" : "offsets";
    const over = bars.sizes.map((size) => size >= 1.5 * bars.average);
    const traces = [
      {
        type: "bar", name: "size", x: bars.partitions, y: bars.sizes, customdata: bars.records,
        marker: { color: over.map((is) => color(is ? "s2" : "s1")) },
        hovertemplate: `partition %{x}: %{y:.3s}B, %{customdata:,} ${things}<extra></extra>`,
        showlegend: false,
      },
      {
        type: "scatter", mode: "lines", name: "average", x: bars.partitions,
        y: bars.partitions.map(() => bars.average), line: { color: color("text"), width: 1.5, dash: "dot" },
        hovertemplate: "average: %{y:.3s}B<extra></extra>",
      },
    ];
    return draw("skew-chart", traces, {
      height: 260, bargap: bars.partitions.length < 10 ? 0.6 : 0.15, legend: legend(-0.25),
      xaxis: { type: "category", title: { text: bars.left ? "partition, the largest first" : "partition" } },
      yaxis: bytesAxis,
    });
  }

  const states = [
    ["live", "retained"], ["dirty", "not cleaned yet"], ["expired", "expired: retention deletes it"],
  ];

  function time(ms) {
    if (ms < 0) return "no timestamp";
    if (ms > 8.64e15) return String(ms);
    return new Date(ms).toISOString().slice(0, 19).replace("T", " ");
  }

  function described(box) {
    const [size, , , count, first, last, from, until, why, expires, toCome, removable] = box;
    const lines = [
      `offsets ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`,
      bytes(size) + (count > 1 ? ` in ${count} segments` : ""),
      `${time(from)} to ${time(until)}`,
      data.whys[why],
    ];
    if (expires !== null) lines.push(`retention.ms deletes it at ${time(expires)}`);
    if (toCome !== null) lines.push(`retention.bytes deletes it after ${bytes(toCome)} more`);
    if (removable) lines.push(`compaction would remove ${removable.toLocaleString("en")} records`);
    return lines;
  }

  function drawMap() {
    const topic = data.topics[byId("map-topic").value];
    byId("map-note").textContent = "";
    if (!topic) return nothing("map-chart", "There are no segments.");
    const traces = new Map(states.map(([state, name]) => [state, {
      type: "bar", orientation: "h", name, x: [], y: [], base: [], customdata: [],
      marker: { color: color(state), line: { color: color("surface"), width: 1 } },
      hovertemplate: "%{customdata}<extra></extra>",
    }]));
    const removable = {
      type: "bar", orientation: "h", name: "superseded: compaction would remove it", x: [], y: [], base: [],
      width: 0.35, marker: { color: color("removable") }, hoverinfo: "skip",
    };
    for (const partition of topic.map) {
      const row = `partition ${partition.name}`;
      let start = 0;
      for (const box of partition.boxes) {
        const [size, gone, state] = box;
        const trace = traces.get(data.states[state]);
        trace.x.push(size); trace.y.push(row); trace.base.push(start);
        trace.customdata.push([`<b>${row}</b>`, ...described(box).map(escaped)].join("<br>"));
        if (gone) { removable.x.push(gone); removable.y.push(row); removable.base.push(start + size - gone); }
        start += size;
      }
    }
    const drawn = [...traces.values(), removable].filter((each) => each.x.length);
    if (topic.unmapped) byId("map-note").textContent = `${topic.unmapped} smaller partitions are not drawn.`;
    return draw("map-chart", drawn, {
      barmode: "overlay", bargap: 0.25, height: 90 + 24 * Math.max(topic.map.length, 2),
      xaxis: { ...bytesAxis, side: "top" },
      yaxis: {
        type: "category", autorange: "reversed", fixedrange: true,
        categoryarray: topic.map.map((each) => `partition ${each.name}`),
      },
      legend: legend(0), hovermode: "closest",
    });
  }

  function drawForecast() {
    if (!data.forecast) return nothing("forecast-chart", "Retention by time deletes nothing later.");
    const traces = [{
      type: "scatter", mode: "lines", x: data.forecast.times, y: data.forecast.sizes,
      line: { shape: "hv", color: color("s1"), width: 2 }, fill: "tozeroy",
      hovertemplate: "%{x|%Y-%m-%d %H:%M}: %{y:.3s}B left<extra></extra>", showlegend: false,
    }];
    return draw("forecast-chart", traces, { height: 240, xaxis: { type: "date" }, yaxis: bytesAxis });
  }

  function drawCodecs() {
    if (!data.codecs.length) return nothing("codec-chart", "");
    const names = data.codecs.map((each) => each.name);
    const bar = (name, field, index) => ({
      type: "bar", orientation: "h", name, y: names, x: data.codecs.map((each) => each[field]),
      marker: { color: color(`s${index}`) }, hovertemplate: "%{y}: %{x:.3s}B<extra></extra>",
    });
    const traces = [bar("on the disk", "stored", 1)];
    if (data.isDeep) traces.push(bar("keys and values", "data", 3));
    return draw("codec-chart", traces, {
      barmode: "group", height: 90 + (data.isDeep ? 46 : 30) * names.length, xaxis: bytesAxis,
      yaxis: { type: "category", autorange: "reversed", fixedrange: true }, showlegend: data.isDeep,
      legend: legend(-0.3),
    });
  }

  function drawLags() {
    if (!data.lags.length) return nothing("lag-chart", "No group lags behind.");
    const traces = [{
      type: "bar", orientation: "h", y: data.lags.map((each) => escaped(each.name)),
      x: data.lags.map((each) => each.lag), marker: { color: color("s1") },
      hovertemplate: "%{y}: %{x:,} records<extra></extra>", showlegend: false,
    }];
    return draw("lag-chart", traces, {
      height: 70 + 24 * Math.max(data.lags.length, 2), bargap: 0.3,
      xaxis: { tickformat: "~s", rangemode: "tozero", side: "top", title: { text: "records not read" } },
      yaxis: { type: "category", autorange: "reversed", fixedrange: true }, hovermode: "closest",
    });
  }

  function drawGaps() {
    if (!data.gaps.length) return nothing("gap-chart", "");
    const traces = [{
      type: "bar", orientation: "h", y: data.gaps.map((each) => escaped(each.name)),
      base: data.gaps.map((each) => each.from), x: data.gaps.map((each) => each.until - each.from),
      customdata: data.gaps.map((each) => `${escaped(each.name)}: ${escaped(each.text)}`),
      marker: { color: color("s4") }, hovertemplate: "%{customdata}<extra></extra>", showlegend: false,
    }];
    const rows = new Set(data.gaps.map((each) => each.name)).size;
    return draw("gap-chart", traces, {
      barmode: "overlay", height: 70 + 24 * Math.max(rows, 2), xaxis: { type: "date", side: "top" },
      yaxis: { type: "category", autorange: "reversed", fixedrange: true }, hovermode: "closest",
    });
  }

  const drawings = [drawGrowth, drawSkew, drawMap, drawForecast, drawCodecs, drawLags, drawGaps];
  const drawAll = () => Promise.all(drawings.map((each) => each()));

  // Fills the choice of a topic, which is hidden if there is none.
  function fill(select, options) {
    for (const [value, text] of options) select.append(new Option(text, value));
    select.closest("label").hidden = !options.length;
    if (!data.uncharted) return;
    const rest = new Option(`${data.uncharted.toLocaleString("en")} smaller topics have no chart`);
    rest.disabled = true;
    select.append(rest);
  }

  const topics = data.topics.map((topic, index) => [String(index), topic.name]);
  fill(byId("growth-topic"), [["", "all topics"], ...topics]);
  const withSkew = (topic, index) => [String(index), `${topic.name} (${topic.skew.toFixed(2)})`];
  const hasSeveral = ([index]) => data.topics[index].bars.partitions.length > 1;
  fill(byId("skew-topic"), data.topics.map(withSkew).filter(hasSeveral));
  fill(byId("map-topic"), topics);

  // -- Plotly, as it is packed in the page -----------------------------------------------------------

  async function load() {
    const packed = Uint8Array.from(atob(byId("plotly").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    await drawAll();
    byId("growth-topic").addEventListener("change", drawGrowth);
    byId("growth-metric").addEventListener("change", drawGrowth);
    byId("skew-topic").addEventListener("change", drawSkew);
    byId("map-topic").addEventListener("change", drawMap);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    let wasNarrow = isNarrow();
    window.addEventListener("resize", () => {
      if (isNarrow() !== wasNarrow) { wasNarrow = isNarrow(); drawAll(); }
    });
    document.documentElement.dataset.ready = "yes";
  }

  load().catch((error) => {
    for (const chart of document.querySelectorAll(".chart")) {
      chart.classList.add("empty");
      chart.textContent = `The chart cannot be drawn: ${error.message}`;
    }
  });
})();
