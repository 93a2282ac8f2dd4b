package suite

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Replicas are added to the two of the control plane, and removed again: 2, 3, 5, 2. One replica is started again with
// another address. Another one is cut off from etcd, and leaves the EndpointSlices until etcd is back.
//
// TestEndpointSlices describes the variables.
func TestEndpointSlicesScale(t *testing.T) {
	if os.Getenv("E2E_REPLICAS") == "" {
		t.Skip("tests/e2e/run runs this test over etcd, after the suite")
	}
	const one, two, three, four, five, six = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"
	check(t, 3*time.Minute, func(ctx context.Context) error {
		if err := eventually(ctx, soon, endpointsAre(one, two)); err != nil {
			return err
		}
		relay, err := newRelay(ctx, flagOf("replica-2", "--etcd-servers="))
		if err != nil {
			return err
		}
		defer relay.cut()
		ports := map[string]string{}
		for _, address := range []string{three, four, five} {
			if ports[address], err = freePort(); err != nil {
				return err
			}
		}
		running := map[string]*exec.Cmd{}
		defer func() {
			for _, replica := range running {
				_ = replica.Process.Kill()
				_ = replica.Wait()
			}
		}()
		start := func(key, address, etcd string) error {
			replica, err := startReplica(ctx, ports[key], address, etcd)
			if err == nil {
				running[key] = replica
			}
			return err
		}
		stop := func(key string, signal os.Signal) error {
			replica := running[key]
			delete(running, key)
			if err := replica.Process.Signal(signal); err != nil {
				return err
			}
			_ = replica.Wait()
			return nil
		}
		within := func(what string, limit time.Duration, want ...string) error {
			began := time.Now()
			if err := eventually(ctx, limit, endpointsAre(want...)); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			t.Logf("%s: the slices are right after %s", what, time.Since(began).Round(10*time.Millisecond))
			return nil
		}

		if err := start(three, three, ""); err != nil {
			return err
		}
		if err := within("a third replica starts", soon, one, two, three); err != nil {
			return err
		}
		if err := start(four, four, relay.url); err != nil {
			return err
		}
		if err := start(five, five, ""); err != nil {
			return err
		}
		if err := within("two more replicas start", soon, one, two, three, four, five); err != nil {
			return err
		}

		if err := stop(three, os.Kill); err != nil {
			return err
		}
		if err := start(three, six, ""); err != nil {
			return err
		}
		if err := within("the third replica starts again with another address", soon, one, two, four, five, six); err != nil {
			return err
		}

		relay.cut()
		if err := within("a replica is cut off from etcd", identityWithin+identitySlack, one, two, five, six); err != nil {
			return err
		}
		if err := relay.mend(ctx); err != nil {
			return err
		}
		// The replica connects to etcd again after a pause, and becomes ready when it has the journal.
		if err := within("etcd is back", soon+identityWithin, one, two, four, five, six); err != nil {
			return err
		}

		for _, key := range []string{three, four} {
			if err := stop(key, os.Kill); err != nil {
				return err
			}
		}
		if err := stop(five, os.Interrupt); err != nil {
			return err
		}
		return within("two replicas are killed, and one is stopped", identityWithin+identitySlack, one, two)
	})
}

// commandLine returns the command line of a process of controlplane/lib.sh.
func commandLine(name string) []string {
	text, err := os.ReadFile(filepath.Join(os.Getenv("E2E_STATE"), "run", name+".cmd"))
	if err != nil {
		panic(err)
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

// flagOf returns the value of a flag of a process.
func flagOf(name, flag string) string {
	for _, argument := range commandLine(name) {
		if value, found := strings.CutPrefix(argument, flag); found {
			return value
		}
	}
	return ""
}

// startReplica starts a replica with the flags of replica-2, apart from these. An empty `etcd` keeps the URL of etcd.
func startReplica(ctx context.Context, port, address, etcd string) (*exec.Cmd, error) {
	flags := map[string]string{
		"--secure-port=":       port,
		"--advertise-address=": address,
		"--node-name=":         "machine-" + address[len("192.0.2."):],
	}
	if etcd != "" {
		flags["--etcd-servers="] = etcd
	}
	line := commandLine("replica-2")
	for number, argument := range line {
		for flag, value := range flags {
			if strings.HasPrefix(argument, flag) {
				line[number] = flag + value
			}
		}
	}
	log, err := os.OpenFile(filepath.Join(os.Getenv("E2E_STATE"), "log", "replica-"+address+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	replica := exec.CommandContext(ctx, line[0], line[1:]...)
	replica.Stdout, replica.Stderr = log, log
	return replica, replica.Start()
}

// relay forwards connections to etcd, until it is cut.
type relay struct {
	url, target string
	listener    net.Listener
	mutex       sync.Mutex
	isCut       bool
	open        []net.Conn
}

func newRelay(ctx context.Context, etcd string) (*relay, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r := &relay{url: fmt.Sprintf("http://127.0.0.1:%s", port), target: strings.TrimPrefix(etcd, "http://")}
	return r, r.mend(ctx)
}

// mend accepts connections again.
func (r *relay) mend(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		return err
	}
	r.mutex.Lock()
	r.isCut, r.listener = false, listener
	r.mutex.Unlock()
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", r.target)
			if err != nil {
				near.Close()
				continue
			}
			r.mutex.Lock()
			if r.isCut {
				near.Close()
				far.Close()
			}
			r.open = append(r.open, near, far)
			r.mutex.Unlock()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
					pair[1].Close()
				}()
			}
		}
	}()
	return nil
}

// cut closes all connections, and refuses new ones.
func (r *relay) cut() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.isCut = true
	r.listener.Close()
	for _, connection := range r.open {
		connection.Close()
	}
	r.open = nil
}
