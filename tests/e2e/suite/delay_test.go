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
	// Text in the line of a takeover just before it replaces the APIService.
	copiedLine = "changes follow"
	// A takeover is undone if a kube-apiserver has not switched after 3 s.
	undoneAfter = 3 * time.Second
)

// delayed takes over while the second kube-apiserver is paused (SIGSTOP) for a time. Then that kube-apiserver serves the
// requests that have arrived meanwhile, and writes to built-in storage, although the first one has switched. A takeover
// that takes too long is undone. Afterwards the cluster is rolled back.
func (s *scene) delayed(ctx context.Context, pause time.Duration) error {
	second, err := processOf("kube-apiserver-2")
	if err != nil {
		return err
	}
	isPaused := false
	var stopped error
	_, err = follow(ctx, os.Getenv("E2E_TAKEOVER"), func(_ int, text string, _ *os.Process) {
		if strings.Contains(text, copiedLine) && !isPaused {
			isPaused, stopped = true, second.Signal(syscall.SIGSTOP)
			time.AfterFunc(pause, func() { _ = second.Signal(syscall.SIGCONT) })
		}
	})
	if stopped != nil {
		return stopped
	}
	s.t.Logf("a takeover with kube-apiserver-2 paused for %s has succeeded: %t", pause, err == nil)
	// On a slow machine a short pause is too long too.
	if isLong := pause > undoneAfter; !isPaused || isLong && err == nil {
		return fmt.Errorf("a takeover with kube-apiserver-2 paused for %s: paused: %t, error: %v", pause, isPaused, err)
	}
	return s.run(ctx, "E2E_ROLLBACK")
}

// processOf returns a process of the control plane.
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
