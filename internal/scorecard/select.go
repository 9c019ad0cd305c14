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
}

// Scenarios returns the scenarios of the rows that pass.
func (f Filter) Scenarios(rows []Row) (all []Scenario) {
	for _, row := range rows {
		if !fits(f.Row, row.Name) {
			continue
		}
		for _, v := range row.Variants {
			if f.Variant != "" && !slices.ContainsFunc(strings.Split(f.Variant, ","), func(part string) bool {
				return strings.Contains(v.Variant+" ", part)
			}) {
				continue
			}
			conditions := row.Conditions
			for _, c := range conditions {
				if fits(f.Quota, c.Quota.String()) && fits(f.Goroutines, strconv.Itoa(c.Goroutines)) && fits(f.Trip, c.Trip.String()) {
					s := v
					s.Row, s.Condition = row.Name, c
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
