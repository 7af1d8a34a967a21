/* The ahead-of-time kernel images of this build; none where nvcc was not there. */
#ifndef EP_CUDA_IMAGES_H
#define EP_CUDA_IMAGES_H

#include <stddef.h>

typedef struct cuda_image {
    const char *name;
    const void *data; /* a fatbin */
    int min_major;    /* lowest compute capability it runs on */
    int only_major;   /* architecture-specific code (sm_90a): this one alone; 0: any */
} cuda_image;
extern const cuda_image cuda_images[];
extern const size_t cuda_image_count;

#endif
