package site

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
	"waldo/internal/model/display"
)

// period is one choice of the page: the last Hours hours, in steps of Step.
type period struct {
	Name, Label, At string
	Hours, Step     int
}

var periods = []period{
	{"day", "24 hours", "15:04", 24, 1}, {"week", "7 days", "Mon 15:04", 7 * 24, 3}, {"month", "31 days", "Jan 2", 31 * 24, 24},
}

// The size of a chart's drawing, in its own units. The browser stretches it to the room that there is.
const chartWidth, chartHeight = 600, 120

// chart is one picture with the table of its figures.
type chart struct {
	ID, Title, Summary, Top, Unit string
	Marks                         []string // below the axis, at equal distances
	Bars                          []bar
	Lines                         []polyline
	Series                        []string
	Rows                          []row
}

// bar is a rectangle of one series. Series are numbered from 0, for their colours.
type bar struct {
	X, Y, W, H string
	Series     int
	Title      string
}

type polyline struct {
	Points string
	Series int
}

type row struct {
	At    string
	Cells []string
}

// pageUsage shows calls, denials, latency and processor time over time, and counts by capability.
func (s *Server) pageUsage(q *request) error {
	of := periods[0]
	for _, p := range periods {
		if p.Name == q.URL.Query().Get("period") {
			of = p
		}
	}
	over, err := s.o.Backend.Hours(q.Context(), of.Hours, of.Step)
	if err != nil {
		return err
	}
	by, err := s.o.Backend.Usage(q.Context(), of.Hours, false)
	if err != nil {
		return err
	}
	agents, err := s.o.Backend.Usage(q.Context(), of.Hours, true)
	if err != nil {
		return err
	}
	total, most := 0, 0
	for _, a := range agents.Items {
		total, most = total+a.Calls, max(most, a.Calls)
	}
	return s.show(q, http.StatusOK, "usage", "Usage", struct {
		Charts  []chart
		Periods []period
		Period  period
		By      List[Usage]
		Agents  List[Usage]
		Total   int
		Most    int
	}{charts(over.Items, of), periods, of, by, agents, total, most})
}

func charts(all []Hour, of period) []chart {
	var sum Hour
	for _, h := range all {
		sum.Calls += h.Calls
		sum.Denied += h.Denied
		sum.Refused += h.Refused
		sum.Failed += h.Failed
		sum.CPUMS += h.CPUMS
	}
	whole := func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
	calls := drawBars("calls", "Calls", display.Count(sum.Calls, "call"), "", all, of, whole, []string{"allowed", "asked", "denied"},
		func(h Hour) []float64 {
			return []float64{float64(h.Calls - h.Asked - h.Denied), float64(h.Asked), float64(h.Denied)}
		})
	denials := drawBars("denials", "Denials and failures",
		fmt.Sprintf("%s by contract, %d refused later, %d failed", display.Count(sum.Denied, "denial"), sum.Refused, sum.Failed), "",
		all, of, whole, []string{"failed", "refused later", "denied by contract"},
		func(h Hour) []float64 { return []float64{float64(h.Failed), float64(h.Refused), float64(h.Denied)} })
	latency := drawLines("latency", "Latency", "of calls that ended", "ms", all, of, func(h Hour) []float64 {
		return []float64{h.P50MS, h.P95MS}
	}, []string{"median", "95th percentile"})
	cpu := drawBars("cpu", "Processor time", seconds(sum.CPUMS/1000)+" of code and servers", "s", all, of, seconds,
		[]string{"processor time"}, func(h Hour) []float64 { return []float64{h.CPUMS / 1000} })
	return []chart{calls, denials, latency, cpu}
}

func seconds(v float64) string {
	if v > 0 && v < 10 {
		return strconv.FormatFloat(v, 'f', 2, 64) + " s"
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " s"
}

func millis(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 1, 64) + " ms"
	case v < 1000:
		return strconv.FormatFloat(v, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(v/1000, 'f', 1, 64) + " s"
}

// frame makes a chart without a drawing: its words and its table.
func frame(
	id, title, summary, unit string, all []Hour, of period, series []string, top float64, say func(float64) string,
	of1 func(Hour) []float64,
) chart {
	c := chart{ID: id, Title: title, Summary: summary, Unit: unit, Series: series, Top: say(top)}
	for _, h := range all {
		r := row{At: h.Start.UTC().Format("Jan 2, 15:04")}
		for _, v := range of1(h) {
			r.Cells = append(r.Cells, say(v))
		}
		c.Rows = append(c.Rows, r)
	}
	if len(all) > 0 {
		end := all[len(all)-1].Start.Add(time.Duration(of.Step) * time.Hour)
		whole := end.Sub(all[0].Start)
		for i := range time.Duration(5) {
			c.Marks = append(c.Marks, all[0].Start.Add(whole*i/4).UTC().Format(of.At))
		}
	}
	return c
}

// ceiling returns a round number from v on: 1, 2 or 5 times a power of ten.
func ceiling(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if v <= f*p {
			return f * p
		}
	}
	return 10 * p
}

// drawBars draws each hour as a stack of its values.
func drawBars(
	id, title, summary, unit string, all []Hour, of period, say func(float64) string, series []string,
	values func(Hour) []float64,
) chart {
	most := 0.0
	for _, h := range all {
		sum := 0.0
		for _, v := range values(h) {
			sum += v
		}
		most = max(most, sum)
	}
	most = ceiling(most)
	c := frame(id, title, summary, unit, all, of, series, most, say, values)
	step := float64(chartWidth) / float64(max(len(all), 1))
	for i, h := range all {
		y := float64(chartHeight)
		for n, v := range values(h) {
			if v <= 0 {
				continue
			}
			tall := max(v/most*chartHeight, 1)
			y -= tall
			c.Bars = append(c.Bars, bar{X: unit1(float64(i)*step + step*0.1), Y: unit1(y), W: unit1(step * 0.8), H: unit1(tall),
				Series: colour(n, series[n]), Title: c.Rows[i].At + ": " + say(v) + " " + series[n]})
		}
	}
	return c
}

// drawLines draws one line for each value. An hour without calls interrupts it.
func drawLines(
	id, title, summary, unit string, all []Hour, of period, values func(Hour) []float64, series []string,
) chart {
	most := 0.0
	for _, h := range all {
		for _, v := range values(h) {
			most = max(most, v)
		}
	}
	most = ceiling(most)
	c := frame(id, title, summary, unit, all, of, series, most, millis, values)
	step := float64(chartWidth) / float64(max(len(all), 1))
	for n := range series {
		points := ""
		flush := func() {
			if points != "" {
				c.Lines = append(c.Lines, polyline{points, n})
			}
			points = ""
		}
		for i, h := range all {
			v := values(h)[n]
			if v == 0 {
				flush()
				continue
			}
			y := chartHeight - v/most*chartHeight
			for _, x := range []float64{0.1, 0.9} { // as wide as a bar, so that a lone hour is seen
				points += unit1((float64(i)+x)*step) + "," + unit1(y) + " "
			}
		}
		flush()
	}
	return c
}

// colour returns the colour of a series: failures have one of their own, others that of their place.
func colour(n int, series string) int {
	if series == "failed" {
		return 3
	}
	return n
}

func unit1(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
