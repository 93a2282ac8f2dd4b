package suite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kubectl runs kubectl as the cluster's administrator, in a namespace.
type kubectl struct{ namespace string }

func (k kubectl) command(ctx context.Context, input string, arguments ...string) *exec.Cmd {
	all := append([]string{
		"--kubeconfig", filepath.Join(os.Getenv("E2E_STATE"), "admin.kubeconfig"), "--namespace", k.namespace,
	}, arguments...)
	run := exec.CommandContext(ctx, os.Getenv("E2E_KUBECTL"), all...)
	run.Stdin = strings.NewReader(input)
	return run
}

func (k kubectl) run(ctx context.Context, input string, arguments ...string) (string, error) {
	run := k.command(ctx, input, arguments...)
	var complaint bytes.Buffer
	run.Stderr = &complaint
	output, err := run.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(complaint.String()))
	}
	return string(output), err
}

// step is a call of kubectl: its arguments, its standard input, and a text that its output must contain. With an empty
// text, kubectl may print anything.
type step struct {
	arguments string
	input     string
	output    string
}

// steps runs steps one after the other, and ends at the first failure.
func (k kubectl) steps(ctx context.Context, steps ...step) error {
	for _, step := range steps {
		output, err := k.run(ctx, step.input, strings.Fields(step.arguments)...)
		if err != nil {
			return err
		}
		if !strings.Contains(output, step.output) {
			return fmt.Errorf("kubectl %s: %q is not in the output %q", step.arguments, step.output, output)
		}
	}
	return nil
}

func manifest(name, holder string) string {
	return fmt.Sprintf(`apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: %s
  labels: {app: e2e}
spec:
  holderIdentity: %s
  leaseDurationSeconds: 40
`, name, holder)
}

// TestKubectl checks kubectl's commands, each one on Leases of its own.
func TestKubectl(t *testing.T) {
	k := kubectl{namespace(t)}
	created := func(name string) step {
		return step{"create -f -", manifest(name, "one"), "lease.coordination.k8s.io/" + name + " created"}
	}
	holder := func(name, want string) step {
		return step{"get lease " + name + " -o jsonpath=[{.spec.holderIdentity}]", "", "[" + want + "]"}
	}
	none := func(name string) step {
		return step{"get leases --field-selector metadata.name=" + name + " -o jsonpath=[{.items}]", "", "[[]]"}
	}
	for name, steps := range map[string][]step{
		"create":          {created("create"), holder("create", "one")},
		"create-dry-run":  {{"create --dry-run=server -f -", manifest("dry", "one"), "created (server dry run)"}, none("dry")},
		"get":             {created("get"), {"get lease get -o name", "", "lease.coordination.k8s.io/get"}},
		"get-all":         {created("get-all"), {"get leases -A", "", k.namespace}, {"get leases -A -o yaml", "", "name: get-all"}},
		"get-yaml":        {created("get-yaml"), {"get lease get-yaml -o yaml", "", "leaseDurationSeconds: 40"}},
		"get-table":       {created("get-table"), {"get lease get-table", "", "HOLDER"}, {"get lease get-table -o wide", "", "one"}},
		"get-selectors":   {created("get-selectors"), {"get leases -l app=e2e --field-selector metadata.name=get-selectors -o name", "", "/get-selectors"}},
		"get-pages":       {created("page-1"), created("page-2"), created("page-3"), {"get leases --chunk-size=1 -o name", "", "/page-3"}},
		"replace":         {created("replace"), {"replace -f -", manifest("replace", "two"), "replaced"}, holder("replace", "two")},
		"patch-merge":     {created("patch-merge"), {`patch lease patch-merge --type merge -p {"spec":{"holderIdentity":"two"}}`, "", "patched"}, holder("patch-merge", "two")},
		"patch-json":      {created("patch-json"), {`patch lease patch-json --type json -p [{"op":"replace","path":"/spec/holderIdentity","value":"two"}]`, "", "patched"}, holder("patch-json", "two")},
		"patch-strategic": {created("patch-strategic"), {`patch lease patch-strategic -p {"spec":{"holderIdentity":"two"}}`, "", "patched"}, holder("patch-strategic", "two")},
		"label":           {created("label"), {"label lease label tier=gold", "", "labeled"}, {"get leases -l tier=gold -o name", "", "/label"}, {"label lease label tier-", "", "unlabeled"}},
		"annotate":        {created("annotate"), {"annotate lease annotate note=hello", "", "annotated"}, {"get lease annotate -o jsonpath={.metadata.annotations.note}", "", "hello"}},
		"apply": {
			{"apply -f -", manifest("apply", "one"), "created"}, {"apply -f -", manifest("apply", "one"), "unchanged"},
			{"apply -f -", manifest("apply", "two"), "configured"}, holder("apply", "two"),
		},
		"apply-server-side": {
			{"apply --server-side -f -", manifest("applied", "one"), "serverside-applied"},
			{"apply --server-side -f -", manifest("applied", "two"), "serverside-applied"}, holder("applied", "two"),
		},
		"describe":      {created("describe"), {"describe lease describe", "", "Holder Identity:"}},
		"api-resources": {{"api-resources --api-group=coordination.k8s.io", "", "leases"}},
		"wait":          {created("wait"), {"wait lease/wait --for=jsonpath={.spec.holderIdentity}=one --timeout=5s", "", "condition met"}},
		"delete":        {created("delete"), {"delete lease delete", "", "deleted"}, none("delete")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, 30*time.Second, func(ctx context.Context) error { return k.steps(ctx, steps...) })
		})
	}
	t.Run("explain", func(t *testing.T) {
		t.Parallel()
		check(t, 30*time.Second, func(ctx context.Context) error {
			return k.steps(ctx,
				// For some seconds after a switch, kube-apiserver's link to the OpenAPI document still has the hash of
				// the former server's document. A request with such an old hash must get the document.
				step{"get --raw /openapi/v3/apis/coordination.k8s.io/v1?hash=OLD", "", "MicroTime"},
				step{"explain lease.spec.renewTime", "", "MicroTime"},
			)
		})
	})
	t.Run("edit", func(t *testing.T) {
		t.Parallel()
		check(t, 30*time.Second, func(ctx context.Context) error {
			if err := k.steps(ctx, created("edit")); err != nil {
				return err
			}
			edit := k.command(ctx, "", "edit", "lease", "edit")
			edit.Env = append(os.Environ(), "KUBE_EDITOR=sed -i s/holderIdentity:.*/holderIdentity:\\ two/")
			if output, err := edit.CombinedOutput(); err != nil {
				return fmt.Errorf("kubectl edit: %w: %s", err, output)
			}
			return k.steps(ctx, holder("edit", "two"))
		})
	})
	t.Run("diff", func(t *testing.T) {
		t.Parallel()
		check(t, 30*time.Second, func(ctx context.Context) error {
			if err := k.steps(ctx, step{"apply -f -", manifest("diff", "one"), "created"}); err != nil {
				return err
			}
			diff := k.command(ctx, manifest("diff", "two"), "diff", "-f", "-")
			output, err := diff.CombinedOutput()
			// The exit status 1 of kubectl diff means that there is a difference.
			if diff.ProcessState == nil || diff.ProcessState.ExitCode() != 1 || !strings.Contains(string(output), "+  holderIdentity: two") {
				return fmt.Errorf("kubectl diff: %w: %s", err, output)
			}
			return nil
		})
	})
	t.Run("apply-server-side-conflict", func(t *testing.T) {
		t.Parallel()
		check(t, 30*time.Second, func(ctx context.Context) error {
			apply := "apply --server-side --field-manager="
			if err := k.steps(ctx, step{apply + "a -f -", manifest("conflict", "one"), "applied"}); err != nil {
				return err
			}
			_, err := k.run(ctx, manifest("conflict", "two"), strings.Fields(apply+"b -f -")...)
			if err == nil || !strings.Contains(err.Error(), `conflict with "a": .spec.holderIdentity`) {
				return fmt.Errorf("no conflict: %v", err)
			}
			return k.steps(ctx, step{apply + "b --force-conflicts -f -", manifest("conflict", "two"), "applied"}, holder("conflict", "two"))
		})
	})
	t.Run("get-watch", func(t *testing.T) {
		t.Parallel()
		check(t, 30*time.Second, func(ctx context.Context) error {
			if err := k.steps(ctx, created("watched")); err != nil {
				return err
			}
			watch := k.command(ctx, "", "get", "leases", "--field-selector", "metadata.name=watched", "-w",
				"--output-watch-events", "-o", "jsonpath={.type}={.object.spec.holderIdentity}{\"\\n\"}")
			var output bytes.Buffer
			watch.Stdout, watch.Stderr = &output, &output
			if err := watch.Start(); err != nil {
				return err
			}
			defer func() { _ = watch.Process.Kill(); _ = watch.Wait() }()
			time.Sleep(2 * time.Second)
			if err := k.steps(ctx, step{"replace -f -", manifest("watched", "two"), "replaced"}, step{"delete lease watched", "", "deleted"}); err != nil {
				return err
			}
			time.Sleep(2 * time.Second)
			_ = watch.Process.Kill()
			_ = watch.Wait()
			if want := "ADDED=one\nMODIFIED=two\nDELETED=two\n"; output.String() != want {
				return fmt.Errorf("kubectl get -w: got %q", output.String())
			}
			return nil
		})
	})
	t.Run("delete-all", func(t *testing.T) {
		t.Parallel()
		own := kubectl{namespace(t)}
		check(t, 30*time.Second, func(ctx context.Context) error {
			return own.steps(ctx, created("a"), created("b"), step{"delete leases --all", "", `"b" deleted`},
				step{"get leases -o jsonpath=[{.items}]", "", "[[]]"})
		})
	})
}
