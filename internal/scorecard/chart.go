package scorecard

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// WriteSVG plays a scenario with every client under one seed and draws them one
// below the other: how many requests were accepted within the last window, all
// the time, against the quota, and when how many were refused.
func WriteSVG(w io.Writer, s Scenario, clients []Client, seed uint64) error {
	c := chart{scenario: s, length: s.length(), columns: 450}
	for _, client := range clients {
		v := s.watch(client, seed)
		c.panels = append(c.panels, c.panel(client.Name, v))
	}
	_, err := io.WriteString(w, c.draw())
	return err
}

// WriteHTML writes a page with a scenario's chart over a table.
func WriteHTML(w io.Writer, s Scenario, clients []Client, seed uint64, rows []Row, lines []Line) error {
	var svg, table strings.Builder
	if err := WriteSVG(&svg, s, clients, seed); err != nil {
		return err
	}
	if err := WriteTable(&table, rows, lines); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>heed: score card</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em}pre{overflow-x:auto;font-size:12px}svg{max-width:100%%;height:auto}</style>
</head><body><h1>Score card</h1>
%s
<pre>%s</pre>
</body></html>
`, svg.String(), html.EscapeString(table.String()))
	return err
}

// A chart is a drawing in the making. Time is cut into columns.
type chart struct {
	scenario Scenario
	length   time.Duration
	columns  int
	panels   []panel
}

// A panel is one client's part.
type panel struct {
	name, figures string
	recent        []float64 // by column: most accepted within a window
	accepted      []int     // by column, as below
	refused       []int
	most          float64
	changes       []Change
}

func (c *chart) panel(name string, v view) panel {
	p := panel{name: name, recent: make([]float64, c.columns), accepted: make([]int, c.columns), refused: make([]int, c.columns)}
	window := c.scenario.Quota.Window
	arrivals, oldest := v.arrivals(), 0
	column := func(at time.Duration) int {
		return min(c.columns-1, int(float64(c.columns)*float64(at)/float64(c.length)))
	}
	raise := func(i int, level float64) {
		p.recent[i] = max(p.recent[i], level)
		p.most = max(p.most, level)
	}
	next := 0
	for i := range c.columns {
		from := time.Duration(float64(i) / float64(c.columns) * float64(c.length))
		for oldest < next && arrivals[oldest] <= from-window {
			oldest++
		}
		raise(i, float64(next-oldest))
		for next < len(arrivals) && column(arrivals[next]) == i {
			for arrivals[oldest] <= arrivals[next]-window {
				oldest++
			}
			next++
			p.accepted[i]++
			raise(i, float64(next-oldest))
		}
	}
	for _, e := range v.events {
		if !e.Accepted && !e.Foreign {
			p.refused[column(e.Arrival)]++
		}
	}
	p.changes = c.scenario.changes(v.seed)
	p.figures = fmt.Sprintf("%d accepted, %d refused", v.tally.Accepted, v.tally.Refused)
	return p
}

const (
	chartWidth = 960
	plotLeft   = 60
	plotWidth  = chartWidth - plotLeft - 20
	plotHeight = 90
	stripMost  = 18
	acceptTop  = plotHeight + 5            // of the strip with the requests accepted, below the plot
	refuseTop  = acceptTop + stripMost + 2 // of that with the refusals
	panelStep  = refuseTop + stripMost + 34
	chartTop   = 64
)

func (c *chart) draw() string {
	var b strings.Builder
	height := chartTop + len(c.panels)*panelStep + 34
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="system-ui,-apple-system,Segoe UI,sans-serif">`,
		chartWidth, height, chartWidth, height)
	b.WriteString("\n<style>text{fill:#1f2933;font-size:12px}.t{font-size:16px;font-weight:600}.n{font-size:13px;font-weight:600}.m{fill:#616e7c}.w{fill:#b5d3f2}.a{fill:#1f63b5}.q{fill:none;stroke:#1f2933;stroke-dasharray:5 4;stroke-width:1}.r{fill:#d64545}.x{stroke:#cbd2d9;stroke-width:1}</style>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	s := c.scenario
	fmt.Fprintf(&b, `<text class="t" x="%d" y="24">%s</text>`+"\n", plotLeft, html.EscapeString(fmt.Sprintf("%s %s: %s", s.Row, s.Variant, s.Condition)))
	for _, key := range []struct {
		at          int
		class, text string
	}{{0, "w", "accepted within the last window"}, {300, "a", "accepted"}, {390, "r", "refused (heights by the logarithm)"}} {
		x := plotLeft + key.at
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="38" width="12" height="10"/><text x="%d" y="47">%s</text>`, key.class, x, x+18, key.text)
	}
	fmt.Fprintf(&b, `<path class="q" d="M%d 43h22"/><text x="%d" y="47">quota</text>`+"\n", plotLeft+220, plotLeft+248)
	top := float64(s.Quota.Units)
	most := 2
	for _, p := range c.panels {
		top = max(top, p.most)
		for i := range c.columns {
			most = max(most, p.accepted[i], p.refused[i])
		}
	}
	for i, p := range c.panels {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`, chartTop+i*panelStep+18)
		c.drawPanel(&b, p, top, most)
		b.WriteString("</g>\n")
	}
	c.drawTime(&b, chartTop+len(c.panels)*panelStep)
	b.WriteString("</svg>\n")
	return b.String()
}

func (c *chart) drawPanel(b *strings.Builder, p panel, top float64, most int) {
	fmt.Fprintf(b, `<text class="n" x="%d" y="-6">%s <tspan class="m" font-weight="400">%s</tspan></text>`, plotLeft, html.EscapeString(p.name), html.EscapeString(p.figures))
	width := float64(plotWidth) / float64(c.columns)
	y := func(n float64) float64 { return plotHeight * (1 - n/(top*1.05)) }
	fmt.Fprintf(b, `<path class="w" d="M%d %d`, plotLeft, plotHeight)
	for i, n := range p.recent {
		fmt.Fprintf(b, "V%.1fH%.1f", y(n), plotLeft+float64(i+1)*width)
	}
	fmt.Fprintf(b, `V%dZ"/>`, plotHeight)
	quota := y(float64(c.scenario.Quota.Units))
	fmt.Fprintf(b, `<path class="x" d="M%d %dh%d"/>`, plotLeft, plotHeight, plotWidth)
	fmt.Fprintf(b, `<path class="q" d="M%d %.1f`, plotLeft, quota)
	for _, ch := range p.changes {
		if ch.Policies != nil {
			fmt.Fprintf(b, "H%.1fV%.1f", plotLeft+plotWidth*float64(ch.At)/float64(c.length), y(float64(ch.Policies[0].Quota)))
		}
	}
	fmt.Fprintf(b, `H%d"/><text class="m" text-anchor="end" x="%d" y="%.1f">%d</text>`, plotLeft+plotWidth, plotLeft-6, quota+4, c.scenario.Quota.Units)
	fmt.Fprintf(b, `<text class="m" text-anchor="end" x="%d" y="%d">0</text>`, plotLeft-6, plotHeight+3)
	strip := func(class string, counts []int, top int, grow int) {
		for i, n := range counts {
			if n > 0 {
				h := 4 + (stripMost-4)*math.Log(float64(n))/math.Log(float64(most))
				y := float64(top) + float64(grow)*(stripMost-h)
				fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, plotLeft+float64(i)*width, y, width, h)
			}
		}
	}
	strip("a", p.accepted, acceptTop, 1)
	strip("r", p.refused, refuseTop, 0)
}

// drawTime draws the axis of time, in round steps.
func (c *chart) drawTime(b *strings.Builder, y int) {
	total := c.length.Seconds()
	step := math.Pow(10, math.Floor(math.Log10(total)))
	for _, f := range []float64{0.5, 0.2, 0.1} {
		if total/step < 5 {
			step = f * math.Pow(10, math.Floor(math.Log10(total)))
		}
	}
	for at := 0.0; at <= total*1.0001; at += step {
		x := plotLeft + at/total*plotWidth
		fmt.Fprintf(b, `<path class="x" d="M%.1f %dv5"/><text class="m" text-anchor="middle" x="%.1f" y="%d">%g s</text>`, x, y, x, y+18, at)
	}
	b.WriteString("\n")
}
