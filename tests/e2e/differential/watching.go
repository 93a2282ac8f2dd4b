package main

import (
	"strings"
	"sync"
	"time"
)

// watching is a watch that is open on both servers.
type watching struct {
	at      int // index of the step
	asked   [2]message
	streams [2]answer
	mutex   sync.Mutex
	events  [2][]string
	ended   [2]bool
	changed time.Time // time of the last event
}

// watch starts to read the events of both servers.
func watch(at int, asked [2]message, answers [2]answer) *watching {
	w := &watching{at: at, asked: asked, streams: answers, changed: time.Now()}
	for side, answer := range answers {
		go func() {
			_ = readEvents(answer.header.Get("Content-Type"), answer.stream, func(event string) {
				if isBookmark(event) {
					return
				}
				if strings.HasPrefix(event, `{"type":"BOOKMARK"`) {
					// The resourceVersion of a bookmark is the newest one, like that of a list. It is not comparable
					// between the servers.
					event = version.ReplaceAllString(event, "$1$${newest}")
				}
				w.mutex.Lock()
				defer w.mutex.Unlock()
				w.events[side] = append(w.events[side], event)
				w.changed = time.Now()
			})
			w.mutex.Lock()
			defer w.mutex.Unlock()
			w.ended[side] = true
		}()
	}
	return w
}

// quiet is the time without a new event after which the test assumes that all events have arrived. late is the maximum
// time for which one server may lag behind the other.
const (
	quiet = 40 * time.Millisecond
	late  = 8 * time.Second
)

// wait returns the events of both servers. It waits until both have sent equally many events and no further one
// arrives, but no longer than late.
func (w *watching) wait() [2][]string {
	for began := time.Now(); ; time.Sleep(quiet / 4) {
		w.mutex.Lock()
		same := len(w.events[0]) == len(w.events[1])
		done := same && time.Since(w.changed) > quiet && time.Since(began) > quiet || time.Since(began) > late
		if done {
			events := [2][]string{append([]string{}, w.events[0]...), append([]string{}, w.events[1]...)}
			w.mutex.Unlock()
			return events
		}
		w.mutex.Unlock()
	}
}

func (w *watching) close() {
	for _, answer := range w.streams {
		answer.stream.Close()
	}
}
