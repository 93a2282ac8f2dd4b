package suite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// The line of a takeover just before it copies the Leases and replaces the APIService.
	checkedLine = "takes the APIService in a dry run"
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
	words := strings.Fields(os.Getenv("E2E_TAKEOVER"))
	run := exec.CommandContext(ctx, words[0], words[1:]...)
	output, err := run.StdoutPipe()
	if err != nil {
		return err
	}
	run.Stderr = run.Stdout
	if err := run.Start(); err != nil {
		return err
	}
	var printed strings.Builder
	for lines := bufio.NewScanner(output); lines.Scan(); {
		fmt.Fprintln(&printed, lines.Text())
		if strings.Contains(lines.Text(), checkedLine) {
			if err := second.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			time.AfterFunc(pause, func() { _ = second.Signal(syscall.SIGCONT) })
		}
	}
	err = run.Wait()
	s.t.Logf("a takeover with kube-apiserver-2 paused for %s has succeeded: %t", pause, err == nil)
	// On a slow machine a short pause is too long too.
	if isLong := pause > undoneAfter; !strings.Contains(printed.String(), checkedLine) || isLong && err == nil {
		return fmt.Errorf("a takeover with kube-apiserver-2 paused for %s: %v: %s", pause, err, printed.String())
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
