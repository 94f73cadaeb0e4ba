/* The main program of a harness that is built without libFuzzer: runs every file of the folders
 * that are its arguments once. So the corpora are replayed by any compiler, in the sanitizer build
 * and in the ordinary one. */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    struct stat status;
    size_t size = fstat(fileno(file), &status) == 0 ? (size_t)status.st_size : 0;
    uint8_t *data =
        malloc(size > 0 ? size : 1); /* of exactly its size, so that a byte too far shows */
    if (!data || fread(data, 1, size, file) != size) {
        perror(path);
        free(data);
        fclose(file);
        return -1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

/* Returns how many files there were, -1 after a message. */
static int replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) {
        perror(folder);
        return -1;
    }
    int n = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        fprintf(stderr, "%s\n", path); /* the last line of a crash names its input */
        if (replay_file(path) < 0) {
            n = -1;
            break;
        }
        n++;
    }
    closedir(dir);
    return n;
}

int main(int argc, char *argv[])
{
    for (int i = 1; i < argc; i++) {
        int n = replay_folder(argv[i]);
        if (n <= 0) {
            fprintf(stderr, "%s: nothing was replayed\n", argv[i]);
            return 1;
        }
        printf("%s: %d inputs\n", argv[i], n);
    }
    return argc > 1 ? 0 : 1;
}
