package heed

import "time"

// Limits are mostly stated per second, minute or hour, or a few of them. So where
// it is known only between which bounds the window of a limit lies, it is
// taken to be the longest such time between them.

// roundTimes are those that windows mostly have.
var roundTimes = func() (all []time.Duration) {
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour} {
		for _, n := range []time.Duration{1, 5, 10, 15, 30} {
			all = append(all, n*unit)
		}
	}
	return append(all, 60*time.Hour)
}()

// roundTime is the longest time up to d that windows mostly have; 0: none.
func roundTime(d time.Duration) (round time.Duration) {
	for _, t := range roundTimes {
		if t <= d {
			round = t
		}
	}
	return round
}

// nextRoundTime is the shortest time from d on that windows mostly have; d where there is none.
func nextRoundTime(d time.Duration) time.Duration {
	for _, t := range roundTimes {
		if t >= d {
			return t
		}
	}
	return d
}

// likelyTime is the shortest time from least to most that windows have, be it rarely; 0: none. Between a wait that is too short and
// one that is enough there are few of them to be tried, so that more count than where nothing is known.
func likelyTime(least, most time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour} {
		for _, n := range []time.Duration{1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 45} {
			if t := n * unit; least <= t && t <= most {
				return t
			}
		}
	}
	return 0
}

// roundest is the longest time of whole seconds from least to most; most where there is none.
func roundest(least, most time.Duration) time.Duration {
	if d := most.Truncate(time.Second); d >= least {
		return d
	}
	return most
}

// roundly reports whether the time to a reset is one that windows mostly have that were begun
// just now, and last for a quarter of an hour or more.
func roundly(d time.Duration) bool {
	whole := d.Round(10 * time.Second)
	return whole%time.Hour == 0 || whole < time.Hour && whole%(5*time.Minute) == 0
}
