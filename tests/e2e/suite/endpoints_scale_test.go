package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEndpointSlicesScale adds replicas to the two of the control plane and removes them again. The number of replicas
// becomes 3, then 5, and at the end 2 again. The test restarts one of them with another address, and cuts another one
// off from etcd. A replica that is cut off must leave the EndpointSlices until it reaches etcd again.
//
// TestEndpointSlices describes the variables.
func TestEndpointSlicesScale(t *testing.T) {
	if os.Getenv("E2E_REPLICAS") == "" {
		t.Skip("tests/e2e/run runs this test over etcd, after the suite")
	}
	const one, two, three, four, five, six = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"
	const relay = "relay"
	check(t, 3*time.Minute, func(ctx context.Context) error {
		ports := map[string]string{}
		for _, name := range []string{relay, three, four, five} {
			port, err := freePort()
			if err != nil {
				return err
			}
			ports[name] = port
		}
		running := map[string]*exec.Cmd{}
		defer func() {
			for _, process := range running {
				_ = process.Process.Kill()
				_ = process.Wait()
			}
		}()
		launch := func(name string, line []string) error {
			process, err := launched(ctx, name, line)
			if err == nil {
				running[name] = process
			}
			return err
		}
		stop := func(name string, signal os.Signal) error {
			process := running[name]
			delete(running, name)
			if err := process.Process.Signal(signal); err != nil {
				return err
			}
			_ = process.Wait()
			return nil
		}
		within := func(what string, limit time.Duration, want ...string) error {
			began := time.Now()
			if err := eventually(ctx, limit, endpointsAre(want...)); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			t.Logf("%s: the EndpointSlices were correct after %s", what, time.Since(began).Round(10*time.Millisecond))
			return nil
		}
		if err := within("at first", soon, one, two); err != nil {
			return err
		}

		if err := launch(three, replicaLine(ports[three], three)); err != nil {
			return err
		}
		if err := within("a third replica starts", soon, one, two, three); err != nil {
			return err
		}
		// The relay is a balancer that forwards connections to etcd. When the relay ends, these connections end too.
		relayLine := []string{filepath.Join(os.Getenv("E2E_CACHE"), "bin", "balancer"), os.DevNull,
			"127.0.0.1:" + ports[relay], "127.0.0.1:" + os.Getenv("E2E_PORT_BASE")}
		if err := launch(relay, relayLine); err != nil {
			return err
		}
		if err := launch(four, replicaLine(ports[four], four, "--etcd-servers=http://127.0.0.1:"+ports[relay])); err != nil {
			return err
		}
		if err := launch(five, replicaLine(ports[five], five)); err != nil {
			return err
		}
		if err := within("two more replicas start", soon, one, two, three, four, five); err != nil {
			return err
		}

		if err := stop(three, os.Kill); err != nil {
			return err
		}
		if err := launch(three, replicaLine(ports[three], six)); err != nil {
			return err
		}
		if err := within("the third replica starts again with another address", soon, one, two, four, five, six); err != nil {
			return err
		}

		if err := stop(relay, os.Kill); err != nil {
			return err
		}
		if err := within("a replica is cut off from etcd", identityWithin+identitySlack, one, two, five, six); err != nil {
			return err
		}
		if err := launch(relay, relayLine); err != nil {
			return err
		}
		// The replica connects to etcd again after a pause. It becomes ready when it has applied the journal.
		if err := within("etcd is back", soon+identityWithin, one, two, four, five, six); err != nil {
			return err
		}

		for _, name := range []string{three, four} {
			if err := stop(name, os.Kill); err != nil {
				return err
			}
		}
		if err := stop(five, os.Interrupt); err != nil {
			return err
		}
		return within("two replicas are killed, and one is stopped", identityWithin+identitySlack, one, two)
	})
}

// replicaLine returns the command line of a further replica. It has the flags of replica-2, except that the port, the
// address and the flags `more` replace flags of the same names.
func replicaLine(port, address string, more ...string) []string {
	text, err := os.ReadFile(filepath.Join(os.Getenv("E2E_STATE"), "run", "replica-2.cmd"))
	if err != nil {
		panic(err)
	}
	line := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	flags := append(more, "--secure-port="+port, "--advertise-address="+address, "--node-name=machine-"+address[len("192.0.2."):])
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		line = slices.DeleteFunc(line, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	}
	return append(line, flags...)
}

// launched starts a process. Its output goes to the log scale-NAME.log.
func launched(ctx context.Context, name string, line []string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(os.Getenv("E2E_STATE"), "log", "scale-"+name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	process := exec.CommandContext(ctx, line[0], line[1:]...)
	process.Stdout, process.Stderr = log, log
	return process, process.Start()
}
