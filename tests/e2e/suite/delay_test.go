package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// Text in the line that a takeover prints just before it replaces the APIService.
	copiedLine = "changes follow"
	// Time after which a takeover is undone if a kube-apiserver has not switched.
	undoneAfter = 3 * time.Second
)

// delayed runs a takeover while the second kube-apiserver is paused (SIGSTOP) for a time. After the pause, the second
// kube-apiserver serves the requests that have arrived. It may still write to built-in storage, although the first
// kube-apiserver already forwards requests to our server. A takeover with a pause longer than undoneAfter must undo
// itself and fail. At the end, delayed rolls the cluster back. If the pause began too late, delayed repeats the
// takeover.
func (s *scene) delayed(ctx context.Context, pause time.Duration) error {
	for range attemptsMax {
		isLate, err := s.pausedTakeover(ctx, pause)
		if err != nil {
			return err
		}
		if err := s.run(ctx, "E2E_ROLLBACK"); err != nil {
			return err
		}
		if !isLate {
			return nil
		}
	}
	return fmt.Errorf("%d takeovers have succeeded while kube-apiserver-2 was paused", attemptsMax)
}

// pausedTakeover runs the takeover of delayed, and waits for the end of the pause. It returns whether the takeover
// succeeded before that end. In this case, the second kube-apiserver had switched before the pause.
func (s *scene) pausedTakeover(ctx context.Context, pause time.Duration) (bool, error) {
	second, err := processOf("kube-apiserver-2")
	if err != nil {
		return false, err
	}
	var stopped error
	var resumed chan struct{}
	_, err = follow(ctx, os.Getenv("E2E_TAKEOVER"), func(_ int, text string, _ *os.Process) {
		if strings.Contains(text, copiedLine) && resumed == nil {
			resumed, stopped = make(chan struct{}), second.Signal(syscall.SIGSTOP)
			time.AfterFunc(pause, func() {
				_ = second.Signal(syscall.SIGCONT)
				close(resumed)
			})
		}
	})
	if resumed == nil {
		return false, fmt.Errorf("a takeover has not printed %q: %v", copiedLine, err)
	}
	isLate := false
	select {
	case <-resumed:
	default:
		isLate = err == nil
		<-resumed
	}
	if stopped != nil {
		return false, stopped
	}
	s.t.Logf("a takeover with kube-apiserver-2 paused for %s has succeeded: %t, before the end of the pause: %t",
		pause, err == nil, isLate)
	// On a slow machine, the takeover may fail even with a short pause.
	if pause > undoneAfter && err == nil && !isLate {
		return false, fmt.Errorf("a takeover has succeeded after kube-apiserver-2 was paused for %s", pause)
	}
	return isLate, nil
}

// processOf returns a process that controlplane/lib.sh has started.
func processOf(name string) (*os.Process, error) {
	text, err := os.ReadFile(filepath.Join(os.Getenv("E2E_STATE"), "run", name+".pid"))
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}
