package scorecard

import (
	"slices"
	"strconv"
	"strings"
)

// A Filter picks from the score card. Each field is a list of names separated
// by commas, of which one must fit; an empty field lets everything through.
type Filter struct {
	Row        string // names of rows
	Variant    string // parts of variants' names: "token-bucket", "down"
	Quota      string // "50/5s"
	Goroutines string // "16"
	Trip       string // "50ms", "tail"
	Quick      bool   // of each variant's conditions every fifth, a different one each time
}

// Scenarios returns the scenarios of the rows that pass.
func (f Filter) Scenarios(rows []Row) (all []Scenario) {
	for _, row := range rows {
		if !fits(f.Row, row.Name) {
			continue
		}
		compare := row.Compare
		if compare == (Condition{}) {
			compare = Condition{quotas[0], goroutines[0], trips[1]}
		}
		for i, v := range row.Variants {
			if f.Variant != "" && !slices.ContainsFunc(strings.Split(f.Variant, ","), func(part string) bool {
				return strings.Contains(v.Variant+" ", part)
			}) {
				continue
			}
			for j, c := range v.Conditions {
				if f.Quick && (i+j)%5 != 0 && c != compare {
					continue
				}
				if fits(f.Quota, c.Quota.String()) && fits(f.Goroutines, strconv.Itoa(c.Goroutines)) && fits(f.Trip, c.Trip.String()) {
					s := v.Scenario
					s.Row, s.Thresholds, s.Condition, s.Compared = row.Name, row.Thresholds, c, c == compare
					all = append(all, s)
				}
			}
		}
	}
	return all
}

func fits(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

// Drawn returns the scenario to draw: the first that all clients play, or else
// the first. There must be one.
func Drawn(scenarios []Scenario) Scenario {
	for _, s := range scenarios {
		if s.Compared {
			return s
		}
	}
	return scenarios[0]
}
