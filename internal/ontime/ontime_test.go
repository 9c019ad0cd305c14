package ontime

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A verdict is a test that notes whether it failed.
type verdict struct {
	testing.TB
	failed bool
}

func (v *verdict) Helper()               {}
func (v *verdict) Logf(string, ...any)   {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }
func (v *verdict) Failed() bool          { return v.failed }

func TestFaultIsToldFromABusyMachine(t *testing.T) {
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		late   []time.Duration // in each try
		errs   []error
		plays  int
		failed bool
	}{
		"well":                         {[]time.Duration{0}, []error{nil}, 1, false},
		"well, though late":            {[]time.Duration{time.Second}, []error{nil}, 1, false},
		"wrong":                        {[]time.Duration{0}, []error{wrong}, 1, true},
		"wrong, and late":              {[]time.Duration{time.Second, 0}, []error{wrong, nil}, 2, false},
		"wrong whatever the machine":   {[]time.Duration{time.Second, 0}, []error{wrong, wrong}, 2, true},
		"wrong time and again, always": {[]time.Duration{1e9, 1e9, 1e9}, []error{wrong, wrong, wrong}, 3, true},
	} {
		v, plays, watches := &verdict{TB: t}, 0, 0
		try(v, func() func() time.Duration {
			watches++
			return func() time.Duration { return c.late[watches-1] }
		}, func() error {
			plays++
			return c.errs[plays-1]
		})
		if plays != c.plays || v.failed != c.failed {
			t.Errorf("%s: %d plays, failed %v", name, plays, v.failed)
		}
	}
}

func TestClockIsOnTimeWhereTheMachineIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := watch()
		time.Sleep(time.Minute)
		if d := late(); d != 0 {
			t.Errorf("late by %v", d)
		}
	})
}
