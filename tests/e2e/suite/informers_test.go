package suite

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"
)

// informersOf are informers that started at one time.
type informersOf struct {
	own cache.SharedIndexInformer
	// In other processes, with several versions of client-go.
	foreign []*foreignInformers
}

// foreignInformers are informers in another process, with one version of client-go.
type foreignInformers struct {
	name  string
	mutex sync.Mutex
	// Holder and renewTime of each Lease, by informer and by name, as the process last wrote them.
	contents map[string]map[string]string
}

// beginForeignInformers starts ../informers in each version, with and without WatchList.
//
//	E2E_INFORMERS   the programs, separated by spaces
func (s *scene) beginForeignInformers() (all []*foreignInformers, err error) {
	for _, program := range strings.Fields(os.Getenv("E2E_INFORMERS")) {
		for _, watchList := range []string{"true", "false"} {
			run := exec.CommandContext(s.alive, program, "--kubeconfig", filepath.Join(os.Getenv("E2E_STATE"), "admin.kubeconfig"),
				"--servers", s.configs[0].Host+","+s.configs[1].Host, "--namespace", s.space, "--selector", "fixed")
			run.Env = append(os.Environ(), "KUBE_FEATURE_WatchListClient="+watchList)
			if watchList == "true" {
				run.Env = append(run.Env, "ENABLE_CLIENT_GO_WATCH_LIST_ALPHA=true")
			}
			output, err := run.StdoutPipe()
			if err != nil {
				return nil, err
			}
			// The program ends with this pipe, and so also with a test that is killed.
			if _, err := run.StdinPipe(); err != nil {
				return nil, err
			}
			var errors bytes.Buffer
			run.Stderr = &errors
			if err := run.Start(); err != nil {
				return nil, err
			}
			started := &foreignInformers{name: fmt.Sprintf("%s, WatchList %s", filepath.Base(program), watchList)}
			all = append(all, started)
			s.begin(func() {
				started.read(bufio.NewScanner(output))
				if err := run.Wait(); s.alive.Err() == nil {
					s.fail(fmt.Errorf("%s has ended: %v: %s", started.name, err, errors.String()))
				}
			})
		}
	}
	return all, nil
}

func (f *foreignInformers) read(lines *bufio.Scanner) {
	for lines.Scan() {
		var contents map[string]map[string]string
		if json.Unmarshal(lines.Bytes(), &contents) == nil {
			f.mutex.Lock()
			f.contents = contents
			f.mutex.Unlock()
		}
	}
}

// shown returns what is compared of a Lease, as ../informers writes it.
func shown(held *coordinationv1.Lease) string {
	return fmt.Sprint(*held.Spec.HolderIdentity, " ", held.Spec.RenewTime.UTC())
}

// agree compares the Leases in the informers with the wanted ones.
func (f *foreignInformers) agree(wanted map[string]string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if len(f.contents) == 0 {
		return fmt.Errorf("%s: nothing was received", f.name)
	}
	for informer, stored := range f.contents {
		if !maps.Equal(stored, wanted) {
			return fmt.Errorf("%s, %s: listed %v, stored %v", f.name, informer, wanted, stored)
		}
	}
	return nil
}
