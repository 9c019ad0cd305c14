package heed_test

import "log/slog"

var discard = slog.New(slog.DiscardHandler)
