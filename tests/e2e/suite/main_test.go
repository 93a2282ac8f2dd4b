// Package suite tests Leases as Kubernetes uses them. Most of its tests run unchanged against kube-apiserver's built-in
// Leases and against our server. A takeover moves the Leases of a cluster from built-in storage (kube-apiserver's own
// storage of Leases in etcd) to our server. The kube-apiservers then forward requests for Leases to our server. A
// rollback moves the Leases back. Both are switches. The tests connect with the kubeconfigs that controlplane/up and
// controlplane/install wrote, and use these variables:
//
//	E2E_STATE    folder of the kubeconfigs and of pki/
//	E2E_TARGET   which server serves the Leases: "builtin" (kube-apiserver) or "server" (our server)
//	E2E_KUBECTL  program kubectl
//	E2E_RESTART  command that restarts the process that serves the Leases
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

// contentTypes has the media types that clients of kube-apiserver use. kubectl and custom controllers use JSON.
// kubelets and the control plane's own controllers use protobuf.
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

// check runs the body of a test. The body must return before the time limit, and without an error.
func check(t *testing.T, limit time.Duration, body func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := body(ctx); err != nil {
		t.Fatal(err)
	}
}

// eachContentType runs a test once with each media type, as a subtest.
func eachContentType(t *testing.T, limit time.Duration, body func(ctx context.Context, t *testing.T, config *rest.Config) error) {
	for name, contentType := range contentTypes {
		t.Run(name, func(t *testing.T) {
			check(t, limit, func(ctx context.Context) error {
				return body(ctx, t, speaking(user("admin"), contentType))
			})
		})
	}
}

// user returns the configuration of a client that connects to kube-apiserver as a user of controlplane/pki.
func user(name string) *rest.Config { return load(name + ".kubeconfig") }

// direct returns the configuration of a client that connects as a user, directly to the server of the Leases. This is
// our server, or kube-apiserver for built-in Leases.
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

// admin returns a client of the cluster's administrator, through kube-apiserver and in JSON. client-go's default is
// protobuf.
func admin() kubernetes.Interface { return clientset(speaking(user("admin"), runtime.ContentTypeJSON)) }

// namespace creates a namespace for a test, and returns its name. The namespace is deleted at the end of the test.
func namespace(t *testing.T) string {
	t.Helper()
	name := "e2e-" + rand.String(8)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin().CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// t.Context() has ended when the cleanup runs.
	t.Cleanup(func() { _ = admin().CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return name
}

// lease returns a Lease that a test can create.
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

// eventually repeats a body every 100 ms until the body returns no error. After the limit, it returns the last error.
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
		return fmt.Errorf("still failing after %s: %w", limit, last)
	}
	return err
}

// restart restarts the process that serves the Leases.
func restart(ctx context.Context) error { return command(ctx, os.Getenv("E2E_RESTART")) }

func command(ctx context.Context, line string) error {
	_, err := outputOf(ctx, line)
	return err
}

// outputOf runs a command and returns what the command prints. The words of a line are separated by spaces.
func outputOf(ctx context.Context, line string) (string, error) {
	words := strings.Fields(line)
	var output bytes.Buffer
	run := exec.CommandContext(ctx, words[0], words[1:]...)
	run.Stdout, run.Stderr = &output, &output
	// The command may leave processes running that have its pipe open. outputOf waits for them for only a second.
	run.WaitDelay = time.Second
	if err := run.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("%s: %w: %s", line, err, output.String())
	}
	return output.String(), nil
}
