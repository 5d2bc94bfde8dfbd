"use strict";

(() => {
  const PRINTED_PX = { width: 660, height: 330 };
  const LONGEST_PRINTED = 60;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = {
    displaylogo: false,
    responsive: true,
    // All buttons there are: plotly's own list has one that uploads the chart.
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    plotlyServerURL: "",
  };
  const plots = Object.keys(figures).map((id) => document.getElementById(id));

  const drawn = plots.map((plot) => {
    const { data, layout } = figures[plot.id];
    return Plotly.newPlot(plot, data, layout, config);
  });
  Promise.all(drawn).then(() => {
    document.documentElement.dataset.drawn = plots.length;
  });

  // Paper has one width, and nothing on it can be opened.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter(
      (details) => details.querySelectorAll("tr").length <= LONGEST_PRINTED,
    );
    opened.forEach((details) => (details.open = true));
    plots.forEach((plot) => {
      const height = Math.min(PRINTED_PX.height, figures[plot.id].layout.height);
      Plotly.relayout(plot, { autosize: false, width: PRINTED_PX.width, height });
    });
  });
  addEventListener("afterprint", () => {
    opened.forEach((details) => (details.open = false));
    plots.forEach((plot) => {
      const { height } = figures[plot.id].layout;
      Plotly.relayout(plot, { autosize: true, width: null, height });
    });
  });
})();
