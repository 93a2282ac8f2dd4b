// Package suite has the tests that kube-apiserver's own Leases and ours must both pass, unchanged. The tests know the
// API only by the kubeconfigs that controlplane/up and controlplane/install wrote:
//
//	E2E_STATE    directory of the kubeconfigs and of pki/
//	E2E_TARGET   "builtin" or "server": which server holds the Leases
//	E2E_KUBECTL  kubectl
//	E2E_RESTART  command that restarts the process which holds the Leases
package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

// Media types of kube-apiserver's clients. kubectl and custom controllers use the first one, kubelets and the control
// plane's own controllers the second.
var contentTypes = map[string]string{
	"json":     runtime.ContentTypeJSON,
	"protobuf": runtime.ContentTypeProtobuf,
}

func builtin() bool { return os.Getenv("E2E_TARGET") == "builtin" }

func TestMain(m *testing.M) {
	for _, name := range []string{"E2E_STATE", "E2E_TARGET", "E2E_KUBECTL", "E2E_RESTART"} {
		if os.Getenv(name) == "" {
			fmt.Fprintf(os.Stderr, "%s is not set: run these tests with tests/e2e/run\n", name)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// check runs a test's body within its time limit.
func check(t *testing.T, limit time.Duration, body func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := body(ctx); err != nil {
		t.Fatal(err)
	}
}

// eachContentType runs a test with each media type.
func eachContentType(t *testing.T, limit time.Duration, body func(ctx context.Context, t *testing.T, config *rest.Config) error) {
	for name, contentType := range contentTypes {
		t.Run(name, func(t *testing.T) {
			check(t, limit, func(ctx context.Context) error {
				return body(ctx, t, speaking(user("admin"), contentType))
			})
		})
	}
}

// user returns the configuration of a user that controlplane/pki created, through kube-apiserver.
func user(name string) *rest.Config { return load(name + ".kubeconfig") }

// direct returns the same user's configuration for direct access: to our server, or to kube-apiserver if that has the
// Leases.
func direct(name string) *rest.Config {
	if builtin() {
		return user(name)
	}
	return load(name + ".direct.kubeconfig")
}

func load(file string) *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(os.Getenv("E2E_STATE"), file))
	if err != nil {
		panic(err)
	}
	config.QPS = -1
	return config
}

func speaking(config *rest.Config, contentType string) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = contentType
	config.AcceptContentTypes = contentType
	if contentType == runtime.ContentTypeProtobuf {
		// Like every client that requests protobuf, this one also accepts JSON.
		config.AcceptContentTypes += "," + runtime.ContentTypeJSON
	}
	return config
}

func clientset(config *rest.Config) kubernetes.Interface { return kubernetes.NewForConfigOrDie(config) }

// admin returns a client for everything except Leases. It uses JSON in all tests; client-go's default is protobuf.
func admin() kubernetes.Interface { return clientset(speaking(user("admin"), runtime.ContentTypeJSON)) }

// namespace creates a namespace for a test.
func namespace(t *testing.T) string {
	t.Helper()
	name := "e2e-" + rand.String(8)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin().CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The context of a test has ended when its cleanup runs.
	t.Cleanup(func() { _ = admin().CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return name
}

// lease builds a Lease to create.
func lease(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &holder,
			LeaseDurationSeconds: ptr.To[int32](40),
			RenewTime:            ptr.To(metav1.NowMicro()),
		},
	}
}

// eventually repeats a body until it returns no error.
func eventually(ctx context.Context, limit time.Duration, body func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		if err := body(ctx); err != nil {
			if ctx.Err() == nil || last == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("not fulfilled after %s: %w", limit, last)
	}
	return err
}

// restart restarts the process that holds the Leases.
func restart(ctx context.Context) error { return command(ctx, os.Getenv("E2E_RESTART")) }

func command(ctx context.Context, line string) error {
	_, err := outputOf(ctx, line)
	return err
}

// outputOf runs a command and returns what it prints.
func outputOf(ctx context.Context, line string) (string, error) {
	words := strings.Fields(line)
	var output bytes.Buffer
	run := exec.CommandContext(ctx, words[0], words[1:]...)
	run.Stdout, run.Stderr = &output, &output
	// A process that the command leaves running holds no pipe of the test. There is no reason to wait for it.
	run.WaitDelay = time.Second
	if err := run.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("%s: %w: %s", line, err, output.String())
	}
	return output.String(), nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if len(line) > 200 {
		line = line[:200] + "…"
	}
	return line
}
