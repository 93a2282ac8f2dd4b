package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// Highest number of a line after which a command is killed. Every command prints fewer lines.
	linesMax = 40
	// Maximum number of attempts until a command succeeds. On a slow machine, a switch may take too long, and is
	// undone.
	attemptsMax = 3
	// Maximum time for which a command stops all writes.
	frozenMax = 3 * time.Second
	// Name of the APIService with which a takeover checks that every kube-apiserver reaches our servers.
	canaryName = "v1.canary.coordination-apiserver.io"
)

// follow runs a command, and calls `each` right after each line that the command prints. `each` gets the number of the
// line, and the line without its time stamp. follow returns the whole output.
func follow(ctx context.Context, line string, each func(number int, text string, run *os.Process)) (string, error) {
	words := strings.Fields(line)
	run := exec.CommandContext(ctx, words[0], words[1:]...)
	output, err := run.StdoutPipe()
	if err != nil {
		return "", err
	}
	run.Stderr = run.Stdout
	if err := run.Start(); err != nil {
		return "", err
	}
	var printed strings.Builder
	lines := bufio.NewScanner(output)
	for number := 1; lines.Scan(); number++ {
		text := lines.Text()
		fmt.Fprintln(&printed, text)
		if _, rest, is := strings.Cut(text, " s  "); is {
			text = rest
		}
		each(number, text, run.Process)
	}
	if err := run.Wait(); err != nil {
		return printed.String(), fmt.Errorf("%s: %w: %s", line, err, printed.String())
	}
	return printed.String(), nil
}

// killAfter runs a command, and kills it right after line number `count`. It returns the last line of a killed run. It
// returns an empty string if the command has ended by itself.
func killAfter(ctx context.Context, line string, count int) (string, error) {
	var last string
	_, err := follow(ctx, line, func(number int, text string, run *os.Process) {
		if number == count {
			_ = run.Kill()
		}
		// The pipe may already contain further lines.
		if number >= count {
			last = text
		}
	})
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
		return last, nil
	default:
		return "", err
	}
}

// kill runs a command of the switch repeatedly, and kills each run after a later line than the run before. It ends when
// a run ends by itself. The next run begins at once, since the killed run may have stopped all writes.
func (s *scene) kill(ctx context.Context, variable string) error {
	return s.killEach(ctx, variable, func(context.Context) error { return nil })
}

// cancel kills takeovers like kill. It cancels or rolls back each takeover before the next one begins.
func (s *scene) cancel(ctx context.Context) error {
	return s.killEach(ctx, "E2E_TAKEOVER", func(ctx context.Context) error {
		_, _, err := s.succeed(ctx, "E2E_CANCEL")
		return err
	})
}

// killEach runs a command repeatedly, and kills each run after a later line than the run before. It calls `between`
// after each run.
func (s *scene) killEach(ctx context.Context, variable string, between func(context.Context) error) error {
	if s.kills <= 0 {
		return nil
	}
	var killed []string
	defer func() { s.t.Logf("%s was killed %d times:\n%s", variable, len(killed), strings.Join(killed, "\n")) }()
	failures := 0
	for count := s.kills; count <= linesMax; {
		last, failed := killAfter(ctx, os.Getenv(variable), count)
		if err := between(ctx); err != nil {
			return fmt.Errorf("%s, after the kill at line %d, %q: %w", variable, count, last, err)
		}
		if failed != nil {
			failures++
			s.t.Logf("%s, which was to be killed after line %d, failed: %v", variable, count, failed)
			if failures == attemptsMax {
				return failed
			}
			continue
		}
		if last == "" {
			break
		}
		failures = 0
		killed = append(killed, fmt.Sprintf("line %d: %s", count, last))
		count += s.kills
	}
	if len(killed) == 0 {
		return fmt.Errorf("%s was not killed: it printed fewer than %d lines", variable, s.kills)
	}
	return nil
}

// succeed runs a command of the switch until it succeeds, at most attemptsMax times. It returns the output and the
// duration of the successful run. Apart from a 409, clients must not notice a failed run either.
func (s *scene) succeed(ctx context.Context, variable string) (printed string, took time.Duration, err error) {
	for attempt := range attemptsMax {
		began := time.Now()
		printed, err = follow(ctx, os.Getenv(variable), func(_ int, text string, _ *os.Process) {
			if text == "every kube-apiserver has switched" {
				s.conflicts.noteSwitch()
			}
		})
		if err == nil {
			return printed, time.Since(began), nil
		}
		s.t.Logf("%s, attempt %d: %v", variable, attempt+1, err)
		if variable == "E2E_TAKEOVER" {
			// The takeover was undone. Its clients may get 409 for their first renewal.
			_, _ = s.logConflicts()
			s.settle()
		}
	}
	return "", 0, err
}

// checkCanary checks that no command has left the APIService canaryName behind.
func (s *scene) checkCanary(ctx context.Context) error {
	found, err := (kubectl{s.space}).run(ctx, "", "get", "apiservice", canaryName, "--ignore-not-found", "-o", "name")
	if err == nil && found != "" {
		err = fmt.Errorf("%s is left behind", strings.TrimSpace(found))
	}
	return err
}
