package redisheed

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Partition implements [heed.Ledger]: the name is an HMAC-SHA256 of the
// credential under the seed, cut to 128 bits. Where Redis has never said which
// seed that is, a process that goes alone uses one of its own, and the name is
// marked as its own too.
func (l *Ledger) Partition(ctx context.Context, credential string) (string, error) {
	if l.bad != nil {
		return "", l.bad
	}
	if credential == "" {
		return "-", nil
	}
	seed, err := l.theSeed(ctx)
	if err != nil && (l.o.OnOutage == Fail || ctx.Err() != nil) {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unnamed = true
		return ownName + hashed(l.own, credential), nil
	}
	name := hashed(seed, credential)
	if l.unnamed {
		l.rename(ownName+hashed(l.own, credential), name)
	}
	return name, nil
}

// ownName begins the names of partitions that mean nothing to other processes.
const ownName = "~"

func hashed(seed []byte, credential string) string {
	mac := hmac.New(sha256.New, seed)
	mac.Write([]byte(credential))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

// theSeed returns the seed that all processes use. Where Redis did not say, it
// is not asked again for a while, and then by one, which does not wait for long.
func (l *Ledger) theSeed(ctx context.Context) ([]byte, error) {
	l.mu.Lock()
	seed, err, now, timeout := l.seed, l.seedErr, time.Now(), l.o.Timeout
	lost, early := err != nil, now.Before(l.seedAgain)
	if lost && !early {
		l.seedAgain, timeout = now.Add(timeout+tryAgainAtMost), min(timeout, enough(now, now, 0))
	}
	l.mu.Unlock()
	if seed != nil {
		return seed, nil
	}
	if lost && early {
		return nil, err
	}
	if seed, err = l.fetchSeed(ctx, timeout); err != nil && ctx.Err() == nil {
		l.mu.Lock()
		if l.seedErr = err; !lost {
			l.seedAgain = time.Now().Add(tryAgainAtMost)
		}
		l.mu.Unlock()
	}
	return seed, err
}

// rename gives the books of a partition the name it has in Redis, which was
// not known when they were begun. l.mu is held.
func (l *Ledger) rename(own, name string) {
	l.unnamed = false
	for was, b := range l.books {
		is := bookName{was.origin, name}
		switch {
		case was.partition == own && l.books[is] == nil:
			delete(l.books, was)
			delete(b.slots.books, own)
			l.books[is], b.slots.books[name] = b, b
			b.mu.Lock()
			b.name = is
			b.mu.Unlock()
		case strings.HasPrefix(was.partition, ownName):
			l.unnamed = true
		}
	}
}

// noSeed is why Redis is not asked about partitions whose names it does not
// know.
func (l *Ledger) noSeed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("redisheed: no seed yet: %w", l.seedErr)
}

func randomSeed() []byte {
	seed := make([]byte, 32)
	rand.Read(seed)
	return seed
}

// fetchSeed takes the seed that is kept in Redis, and puts one there where
// there is none. A seed that comes too late is there for whoever asks next.
func (l *Ledger) fetchSeed(ctx context.Context, timeout time.Duration) ([]byte, error) {
	learn := func(seed []byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.seed == nil {
			l.seed, l.seedDue = seed, time.Now().Add(seedEvery)
		}
	}
	seed, err := l.agreeOn(ctx, timeout, randomSeed(), learn)
	if err != nil {
		return nil, err
	}
	learn(seed)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seed, nil
}

// agreeOn returns the seed that is kept in Redis: what is offered, where there was none. One that comes too
// late goes to late.
func (l *Ledger) agreeOn(ctx context.Context, timeout time.Duration, offered []byte, late func([]byte)) ([]byte, error) {
	key := l.o.Prefix + ":seed"
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, enough(time.Now(), deadline, 0))
	}
	seed, err := call(ctx, l, timeout, func(ctx context.Context) ([]byte, error) {
		v, err := l.c.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			if err = l.c.SetNX(ctx, key, hex.EncodeToString(offered), 0).Err(); err == nil {
				v, err = l.c.Get(ctx, key).Result()
			}
		}
		if err != nil {
			return nil, err
		}
		seed, err := hex.DecodeString(v)
		if err != nil {
			return nil, fmt.Errorf("redisheed: %s is not a seed: %w", key, err)
		}
		return seed, nil
	}, late)
	l.seekMaster(ctx, err)
	return seed, err
}

// seedEvery is how often a process that asks Redis sees to it that the seed is there: it is
// read by new processes only, and so the first that a Redis without room would evict.
const seedEvery = 10 * time.Second

// keepSeed puts the seed this process knows back into a Redis that lost it: a process that
// is new would draw another one, and share nothing with this one.
func (l *Ledger) keepSeed() {
	l.mu.Lock()
	seed := l.seed
	l.mu.Unlock()
	if l.o.Seed != nil || seed == nil {
		return
	}
	kept, err := l.agreeOn(context.Background(), l.o.Timeout, seed, nil)
	if err != nil || bytes.Equal(kept, seed) {
		return
	}
	l.mu.Lock()
	fresh := !bytes.Equal(kept, l.seedOther)
	l.seedOther = kept
	l.mu.Unlock()
	if fresh {
		l.o.Logger.Error("redisheed: the seed in Redis is no longer that of this process, which shares no quotas of credentials with newer ones until it is restarted; Options.Seed prevents that", "key", l.o.Prefix+":seed")
	}
}

// seedIsDue reports whether it is time to see to the seed, which it then is for whoever asks first.
func (l *Ledger) seedIsDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.seed == nil || now.Before(l.seedDue) || l.closed {
		return false
	}
	l.seedDue = now.Add(seedEvery)
	return true
}
