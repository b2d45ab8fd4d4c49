/* The process that holds a pod's namespaces: it waits, reaps what dies in the pod, and ends when told to. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }

int main(void) {
    struct sigaction reaper = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    signal(SIGINT, end);
    signal(SIGTERM, end);
    sigaction(SIGCHLD, &reaper, 0);
    for (;;) pause();
}
