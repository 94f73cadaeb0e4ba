/* Counts the primes below N. It is compiled inside the sandbox. Run it with
 *   hutch run examples/sieve.c 10000000
 * and see what a limit does:
 *   hutch run --memory 64M examples/sieve.c 500000000
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    char *composite = malloc(n + 1);
    if (!composite) {
        perror("malloc");
        return 1;
    }
    memset(composite, 0, n + 1);

    size_t count = 0;
    for (size_t i = 2; i < n; i++) {
        if (composite[i])
            continue;
        count++;
        for (size_t j = i * i; i <= n / i && j < n; j += i)
            composite[j] = 1;
    }
    printf("%zu primes below %zu\n", count, n);
    free(composite);
    return 0;
}
