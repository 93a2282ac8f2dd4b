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
// kube-apiserver serves the requests that have arrived. It may write to built-in storage, although the first
// kube-apiserver has switched. A takeover with a pause longer than undoneAfter must undo itself and fail. At the end,
// delayed rolls the cluster back.
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
	// On a slow machine, the takeover may fail even with a short pause.
	if isLong := pause > undoneAfter; !isPaused || isLong && err == nil {
		return fmt.Errorf("a takeover with kube-apiserver-2 paused for %s: the pause began: %t, error: %v", pause, isPaused, err)
	}
	return s.run(ctx, "E2E_ROLLBACK")
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
