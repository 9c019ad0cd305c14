// Package scorecard measures how well clients keep to rate limits: how often
// they are refused, how much of a quota they use, whom they harm. It runs
// scenarios in virtual time over the origins of package heedtest and holds the
// figures against those of an oracle that knows what no client can know.
//
// A [Row] of the score card is a claim with its thresholds: [Rows] has them
// all. A row stands for many [Scenario]s, one for each variant and condition.
// [PlayAll] plays them, each with one client and one seed giving a [Result];
// [Sum] gathers the results and says which rows are met, and what of the rest no
// considerate client could meet.
package scorecard
